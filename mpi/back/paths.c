#include "paths.h"

#include <stdlib.h>

#include "numbering.h"

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

/* The worse of both: `worst` starts with zeros, which are unknown. */
static void worsen(double *rtt_seconds, double *bytes_per_second, const struct path *path)
{
    if (path->rtt_seconds > *rtt_seconds)
        *rtt_seconds = path->rtt_seconds;
    if (path->bytes_per_second > 0 && (*bytes_per_second <= 0 || path->bytes_per_second < *bytes_per_second))
        *bytes_per_second = path->bytes_per_second;
}

/* The first level at which two sites of the topology, not the same one, are at different places. */
static int parted_at(const struct topology *topology, int a, int b)
{
    const int *of_a = topology->places + a * topology->levels, *of_b = topology->places + b * topology->levels;
    int level = 0;
    while (level < topology->levels - 1 && of_a[level] == of_b[level])
        level++;
    return level;
}

void paths_fill(struct topology *topology)
{
    struct path worst[LEVELS_MAX] = { { 0, 0 } };
    for (int filling = 0; filling < 2; filling++) {
        for (int a = 0; a < topology->sites; a++) {
            for (int b = 0; b < topology->sites; b++) {
                struct path *path = &topology->path[a * topology->sites + b];
                struct path *of_level = &worst[parted_at(topology, a, b)];
                if (a == b)
                    continue;
                if (!filling) {
                    worsen(&of_level->rtt_seconds, &of_level->bytes_per_second, path);
                    continue;
                }
                path->rtt_seconds = path->rtt_seconds > 0 ? path->rtt_seconds : of_level->rtt_seconds;
                path->bytes_per_second = path->bytes_per_second > 0 ? path->bytes_per_second : of_level->bytes_per_second;
            }
        }
    }
}

/* Counts subsets and ranks of a level. `set_of[s]` is what site s is together with at the levels
 * above, and becomes what it is together with at this one, too. `count`: [3 * sites] scratch. */
static int count_level(struct level *level, const struct places *places, const int *ranks, int *set_of, int *count)
{
    struct numbering numbering;
    int sites = places->sites, *set_subsets = count, *subset_ranks = count + sites, *subset_of = count + 2 * sites;
    const struct topology *topology = places->topology;
    if (numbering_start(&numbering, sites) != 0)
        return -1;
    for (int s = 0; s < sites; s++)
        set_subsets[s] = subset_ranks[s] = 0;
    for (int s = 0; s < sites; s++) {
        int before = numbering.count;
        subset_of[s] = numbering_of(&numbering, set_of[s], topology->places[places->site[s] * topology->levels + level->number]);
        set_subsets[set_of[s]] += numbering.count > before;
        subset_ranks[subset_of[s]] += ranks[s];
    }
    numbering_free(&numbering);
    for (int s = 0; s < sites; s++) {
        level->subsets = set_subsets[s] > level->subsets ? set_subsets[s] : level->subsets;
        level->ranks = subset_ranks[s] > level->ranks ? subset_ranks[s] : level->ranks;
        set_of[s] = subset_of[s];
    }
    return 0;
}

int shape_paths(struct shape *shape, const struct places *places, const int *ranks)
{
    const struct topology *topology = places->topology;
    struct level level[LEVELS_MAX] = { { 0 } };
    int *set_of = calloc(4 * (size_t)places->sites, sizeof *set_of);
    if (set_of == NULL)
        return -1;
    shape->wan_rtt_seconds = shape->wan_bytes_per_second = shape->lan_rtt_seconds = shape->lan_bytes_per_second = 0;
    for (int a = 0; a < places->sites; a++) {
        for (int b = 0; b <= a; b++) {
            struct path path = path_between(topology, places->site[a], places->site[b]);
            struct level *parted = &level[parted_at(topology, places->site[a], places->site[b])];
            if (a == b) {
                worsen(&shape->lan_rtt_seconds, &shape->lan_bytes_per_second, &path);
                continue;
            }
            worsen(&shape->wan_rtt_seconds, &shape->wan_bytes_per_second, &path);
            worsen(&parted->rtt_seconds, &parted->bytes_per_second, &path);
        }
    }
    int rc = 0;
    shape->levels = 0;
    for (int l = 0; l < topology->levels && l < LEVELS_MAX && rc == 0; l++) {
        level[l].number = l;
        rc = count_level(&level[l], places, ranks, set_of, set_of + places->sites);
        if (level[l].subsets > 1)
            shape->level[shape->levels++] = level[l];
    }
    free(set_of);
    return rc;
}
