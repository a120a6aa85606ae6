/* The first arrivals of a wave, and the way that it took. */
#ifndef RAYS_H
#define RAYS_H

#include <stddef.h>

#include "earth.h"

/* PKP goes through the core; here it is also what seismologists call PKIKP, through the inner one, and
 * what the inner core's surface reflects totally. */
enum phase { PHASE_P, PHASE_PKP, PHASE_S, PHASES };

/* Names as printed. */
extern const char *const phase_names[PHASES];

/* A first arrival. `time` is negative where none arrives. A ray starts down from its source, or, if
 * `up`, goes straight to the surface. */
struct arrival {
    double time;
    double parameter;
    int up;
};

/* A point of a ray: how far it is from the source, seen from the centre, and its radius. */
struct point {
    double angle, radius;
};

/* Parameters for which the ways from the surface to the turning point are known, in growing order. */
struct table {
    size_t count;
    double *parameter, *turn_angle;
};

/* What finds rays: tables of the Earth, and of the source that was asked for last. */
struct tracer {
    const struct earth *earth;
    struct table table[PHASES];
    double source;
    double *source_angle[PHASES];
};

struct tracer tracer_of(const struct earth *earth);
void tracer_free(struct tracer *tracer);

/* The first arrival of a phase from a source at `radius` at a place of the surface that is `angle` away,
 * 0 to pi. */
struct arrival first_arrival(struct tracer *tracer, enum phase phase, double radius, double angle);

/* The points of an arrival's ray, from the source to the surface. They are so close that straight lines
 * between them follow it: their lengths are within a millionth of its own. Returns how many there are;
 * `points` grows as needed. */
size_t trace(const struct tracer *tracer, enum phase phase, double radius, const struct arrival *arrival,
             struct point **points, size_t *room);

#endif
