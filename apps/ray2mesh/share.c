#include "share.h"

#include <stdio.h>
#include <stdlib.h>

#include "memory.h"

/* What is wrong with all files together, or nothing. */
static int check(const struct files *files, const struct survey *survey, char *error, size_t room)
{
    double solid = earth_solid_km(survey->samples, survey->sample_count);
    for (int i = 0; i < survey->event_count; i++)
        if (survey->events[i].depth_km >= solid) {
            snprintf(error, room, "%s: an earthquake is %g km deep, and the model is solid down to %g km",
                     files->events, survey->events[i].depth_km, solid);
            return -1;
        }
    if ((long long)survey->event_count * survey->station_count > MOST_RAYS) {
        snprintf(error, room, "%s: with so many stations these events make more than %d rays", files->events,
                 MOST_RAYS);
        return -1;
    }
    return 0;
}

int survey_read(const struct files *files, struct survey *survey, char *error, size_t room)
{
    survey->sample_count = earth_read(files->model, &survey->samples, error, room);
    if (survey->sample_count < 0)
        return -1;
    survey->event_count = events_read(files->events, &survey->events, error, room);
    if (survey->event_count < 0)
        return -1;
    survey->station_count = stations_read(files->stations, &survey->stations, error, room);
    if (survey->station_count < 0)
        return -1;
    return check(files, survey, error, room);
}

static void share(MPI_Comm comm, int rank, void **items, int count, size_t size)
{
    if (rank != 0)
        *items = allocate((size_t)count * size);
    MPI_Bcast(*items, (int)((size_t)count * size), MPI_BYTE, 0, comm);
}

void survey_share(MPI_Comm comm, struct survey *survey)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    struct survey shared = *survey;
    MPI_Bcast(&shared, sizeof shared, MPI_BYTE, 0, comm);
    void *samples = survey->samples, *events = survey->events, *stations = survey->stations;
    share(comm, rank, &samples, shared.sample_count, sizeof(struct sample));
    share(comm, rank, &events, shared.event_count, sizeof(struct event));
    share(comm, rank, &stations, shared.station_count, sizeof(struct station));
    *survey = shared;
    survey->samples = samples;
    survey->events = events;
    survey->stations = stations;
}

void survey_free(struct survey *survey)
{
    free(survey->samples);
    free(survey->events);
    free(survey->stations);
}
