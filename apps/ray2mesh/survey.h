/* What is to be traced, which all ranks know. */
#ifndef SURVEY_H
#define SURVEY_H

#include <stdint.h>

#include "catalogue.h"
#include "earth.h"
#include "mesh.h"

/* A ray is a pair of an event and a station: number event * stations + station. */
struct survey {
    struct sample *samples;
    struct event *events;
    struct station *stations;
    int sample_count, event_count, station_count;
    struct grid grid;
};

/* Times at which a ray's phases arrive, in s after the earthquake; negative where none does. */
struct result {
    int32_t ray;
    float time[PHASES];
};

/* Their results' bytes, all together, are counted in an int; the master and bosses have room for all. */
#define MOST_RAYS 10000000

/* Rays that follow each other. */
struct range {
    int32_t first, count;
};

/* What a rank traces with. */
struct work {
    const struct survey *survey;
    struct earth earth;
    struct tracer tracer;
    struct mesh mesh;
    struct point *points;
    size_t room;
    long cost_us;
};

static inline int survey_rays(const struct survey *survey)
{
    return survey->event_count * survey->station_count;
}

/* The angle between a ray's event and station. */
double survey_angle(const struct survey *survey, int ray);

/* Each ray also takes `cost_us` of sleep, as if tracing it took so much longer. */
struct work *work_of(const struct survey *survey, long cost_us);
void work_free(struct work *work);

/* Traces rays through the mesh, and stores their times. */
void work_trace(struct work *work, struct range range, struct result *results);

#endif
