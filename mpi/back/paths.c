#include "paths.h"

#include <string.h>

/* A country's research network between sites, 10 Gbit/s Ethernet within them. */
static const struct path usual_between = { .rtt_seconds = 10e-3, .bytes_per_second = 50e6 };
static const struct path usual_within = { .rtt_seconds = 60e-6, .bytes_per_second = 1.1e9 };

struct path path_between(const struct topology *topology, int a, int b)
{
    const struct path *usual = a == b ? &usual_within : &usual_between;
    struct path path = topology->path[a * topology->sites + b];
    if (path.rtt_seconds <= 0)
        path.rtt_seconds = usual->rtt_seconds;
    if (path.bytes_per_second <= 0)
        path.bytes_per_second = usual->bytes_per_second;
    return path;
}

/* The worse of both: `worst` starts with zeros. */
static void worsen(double *rtt_seconds, double *bytes_per_second, const struct path *path)
{
    if (path->rtt_seconds > *rtt_seconds)
        *rtt_seconds = path->rtt_seconds;
    if (*bytes_per_second <= 0 || path->bytes_per_second < *bytes_per_second)
        *bytes_per_second = path->bytes_per_second;
}

/* Whether two sites of the communicator are at the same places at the first `outer` levels. */
static int together(const struct places *places, int a, int b, int outer)
{
    const struct topology *topology = places->topology;
    const int *of_a = topology->places + places->site[a] * topology->levels;
    const int *of_b = topology->places + places->site[b] * topology->levels;
    return memcmp(of_a, of_b, (size_t)outer * sizeof *of_a) == 0;
}

/* What is at one place at a level is a subset of what is together at those above. */
static struct level level_of(const struct places *places, int outer, const int *ranks, int *first)
{
    struct level level = { .number = outer };
    for (int a = 0; a < places->sites; a++) {
        int subset_ranks = 0;
        first[a] = 1;
        for (int b = 0; b < places->sites; b++) {
            if (together(places, a, b, outer + 1)) {
                subset_ranks += ranks[b];
                first[a] &= b >= a;
            } else if (together(places, a, b, outer)) {
                struct path path = path_between(places->topology, places->site[a], places->site[b]);
                worsen(&level.rtt_seconds, &level.bytes_per_second, &path);
            }
        }
        level.ranks = subset_ranks > level.ranks ? subset_ranks : level.ranks;
    }
    for (int a = 0; a < places->sites; a++) {
        int subsets = 0;
        for (int b = 0; b < places->sites; b++)
            subsets += first[b] && together(places, a, b, outer);
        level.subsets = subsets > level.subsets ? subsets : level.subsets;
    }
    return level;
}

void shape_paths(struct shape *shape, const struct places *places, const int *ranks, int *first)
{
    shape->wan_rtt_seconds = shape->wan_bytes_per_second = shape->lan_rtt_seconds = shape->lan_bytes_per_second = 0;
    for (int a = 0; a < places->sites; a++) {
        for (int b = 0; b < places->sites; b++) {
            struct path path = path_between(places->topology, places->site[a], places->site[b]);
            if (a == b)
                worsen(&shape->lan_rtt_seconds, &shape->lan_bytes_per_second, &path);
            else
                worsen(&shape->wan_rtt_seconds, &shape->wan_bytes_per_second, &path);
        }
    }
    shape->levels = 0;
    for (int outer = 0; outer < places->topology->levels && shape->levels < LEVELS_MAX; outer++) {
        struct level level = level_of(places, outer, ranks, first);
        if (level.subsets > 1)
            shape->level[shape->levels++] = level;
    }
}
