#define _POSIX_C_SOURCE 200809L

#include "survey.h"

#include <stdlib.h>
#include <time.h>

/* In a simulation this replaces functions that sleep. */
#include <mpi.h>

#include "memory.h"

double survey_angle(const struct survey *survey, int ray)
{
    const struct event *event = &survey->events[ray / survey->station_count];
    return angle_between(&event->place, &survey->stations[ray % survey->station_count].place);
}

struct work *work_of(const struct survey *survey, long cost_us)
{
    struct work *work = allocate(sizeof *work);
    work->survey = survey;
    work->cost_us = cost_us;
    work->earth = earth_of(survey->samples, survey->sample_count);
    work->tracer = tracer_of(&work->earth);
    work->mesh = mesh_of(&survey->grid);
    return work;
}

void work_free(struct work *work)
{
    tracer_free(&work->tracer);
    earth_free(&work->earth);
    mesh_free(&work->mesh);
    free(work->points);
    free(work);
}

static struct result trace_ray(struct work *work, int ray)
{
    const struct event *event = &work->survey->events[ray / work->survey->station_count];
    const struct place *station = &work->survey->stations[ray % work->survey->station_count].place;
    double radius = work->earth.radius - event->depth_km, angle = angle_between(&event->place, station);
    struct result result = {.ray = ray};
    for (int phase = 0; phase < PHASES; phase++) {
        struct arrival arrival = first_arrival(&work->tracer, phase, radius, angle);
        result.time[phase] = (float)arrival.time;
        if (arrival.time < 0)
            continue;
        size_t count = trace(&work->tracer, phase, radius, &arrival, &work->points, &work->room);
        mesh_add(&work->mesh, &event->place, station, work->points, count);
    }
    return result;
}

void work_trace(struct work *work, struct range range, struct result *results)
{
    long long microseconds = (long long)work->cost_us * range.count;
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    for (int i = 0; i < range.count; i++)
        results[i] = trace_ray(work, range.first + i);
    if (microseconds > 0)
        nanosleep(&pause, NULL);
}
