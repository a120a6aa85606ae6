#include "earth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lines.h"
#include "memory.h"

/* A shell whose slowness doesn't change has no closed form: so little of a change is none to see. */
#define LEAST_POWER 1e-6

#define LEAST_RADIUS_KM 1000
#define MOST_RADIUS_KM 100000

static const char *sample_of(const char *text, void *items, size_t index)
{
    struct sample *samples = items, *sample = &samples[index];
    if (sscanf(text, "%lf %lf %lf", &sample->depth, &sample->p, &sample->s) != 3)
        return "it has no depth and two speeds";
    if (!(sample->p > 0 && sample->p < 100 && sample->s >= 0 && sample->s < 100))
        return "speeds are 0 to 100 km/s, and that of P isn't 0";
    if (index == 0 && !(sample->depth == 0 && sample->s > 0))
        return "the first depth isn't 0, or S doesn't go there";
    if (index > 0 && !(sample->depth >= samples[index - 1].depth && sample->depth < MOST_RADIUS_KM))
        return "depths don't go down, or are above 100,000 km";
    return NULL;
}

int earth_read(const char *path, struct sample **samples, char *error, size_t room)
{
    static const struct lines lines = {sample_of, sizeof(struct sample), 2, 10000};
    void *items = NULL;
    int count = lines_read(path, &lines, &items, error, room);
    *samples = items;
    if (count < 0 || (count > 1 && (*samples)[count - 1].depth >= LEAST_RADIUS_KM))
        return count;
    snprintf(error, room, "%s: a model needs depths from 0 to the centre, after two lines of text", path);
    return -1;
}

double earth_solid_km(const struct sample *samples, int count)
{
    for (int i = 0; i < count; i++)
        if (samples[i].s == 0)
            return samples[i].depth;
    return samples[count - 1].depth;
}

static void add(struct speeds *speeds, double outer, double inner, double outer_speed, double inner_speed)
{
    struct shell *shell = &speeds->shell[speeds->shells++];
    shell->outer = outer;
    shell->inner = inner;
    shell->outer_slowness = outer / outer_speed;
    /* Around the centre the speed is the same everywhere. */
    shell->power = 1;
    if (inner > 0)
        shell->power = log(shell->outer_slowness * inner_speed / inner) / log(outer / inner);
    if (fabs(shell->power) < LEAST_POWER)
        shell->power = LEAST_POWER;
    shell->inner_slowness = shell->outer_slowness * pow(inner / outer, shell->power);
}

/* The shells between two lines. */
static void divide(struct speeds *speeds, double radius, const struct sample *from, const struct sample *to,
                   double from_speed, double to_speed)
{
    double depth = to->depth - from->depth;
    int parts = (int)ceil(depth / SHELL_KM);
    for (int part = 0; part < parts; part++) {
        double begins = (double)part / parts, ends = (double)(part + 1) / parts;
        add(speeds, radius - from->depth - begins * depth,
            part + 1 == parts ? radius - to->depth : radius - from->depth - ends * depth,
            from_speed + begins * (to_speed - from_speed), from_speed + ends * (to_speed - from_speed));
    }
}

static void note_core(struct speeds *speeds)
{
    speeds->core_slowness = speeds->shell[speeds->shells - 1].inner_slowness;
}

struct earth earth_of(const struct sample *samples, int count)
{
    struct earth earth = {.radius = samples[count - 1].depth};
    double solid = earth_solid_km(samples, count);
    size_t most = (size_t)count + (size_t)(earth.radius / SHELL_KM) + 1;
    earth.p.shell = allocate(most * sizeof *earth.p.shell);
    earth.s.shell = allocate(most * sizeof *earth.s.shell);
    for (int i = 0; i + 1 < count; i++) {
        const struct sample *from = &samples[i], *to = &samples[i + 1];
        divide(&earth.p, earth.radius, from, to, from->p, to->p);
        /* S doesn't go through the outer core, which is fluid. */
        if (to->depth <= solid && to->s > 0)
            divide(&earth.s, earth.radius, from, to, from->s, to->s);
        if (to->depth == solid && solid < earth.radius && to->depth > from->depth) {
            note_core(&earth.p);
            note_core(&earth.s);
        }
    }
    return earth;
}

void earth_free(struct earth *earth)
{
    free(earth->p.shell);
    free(earth->s.shell);
    *earth = (struct earth){0};
}

static double slowness_in(const struct shell *shell, double radius)
{
    return shell->outer_slowness * pow(radius / shell->outer, shell->power);
}

double slowness_below(const struct speeds *speeds, double radius)
{
    for (size_t i = 0; i < speeds->shells; i++)
        if (radius > speeds->shell[i].inner)
            return slowness_in(&speeds->shell[i], fmin(radius, speeds->shell[i].outer));
    return 0;
}

double least_slowness_above(const struct speeds *speeds, double radius)
{
    double least = INFINITY;
    for (size_t i = 0; i < speeds->shells && speeds->shell[i].outer > radius; i++) {
        const struct shell *shell = &speeds->shell[i];
        double inner = slowness_in(shell, fmax(radius, shell->inner));
        least = fmin(least, fmin(shell->outer_slowness, inner));
    }
    return least;
}
