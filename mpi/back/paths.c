#include "paths.h"

#include <string.h>

/* A country's research network between sites, 10 Gbit/s Ethernet within them. */
static const struct path usual_between = { .rtt_seconds = 10e-3, .bytes_per_second = 50e6 };
static const struct path usual_within = { .rtt_seconds = 60e-6, .bytes_per_second = 1.1e9 };

/* The worse of both: `worst` starts with zeros. */
static void worsen(struct path *worst, const struct path *path, const struct path *usual)
{
    double rtt = path->rtt_seconds > 0 ? path->rtt_seconds : usual->rtt_seconds;
    double rate = path->bytes_per_second > 0 ? path->bytes_per_second : usual->bytes_per_second;
    if (rtt > worst->rtt_seconds)
        worst->rtt_seconds = rtt;
    if (worst->bytes_per_second <= 0 || rate < worst->bytes_per_second)
        worst->bytes_per_second = rate;
}

/* Whether some of the sites are together at a level above sites, and others are not. */
static int is_nested(const struct topology *topology, const int *site, int sites)
{
    int levels = topology->levels;
    for (int outer = 1; outer < levels; outer++) {
        int together = 0, apart = 0;
        for (int a = 0; a < sites; a++) {
            for (int b = 0; b < a; b++) {
                const int *of_a = topology->places + site[a] * levels, *of_b = topology->places + site[b] * levels;
                int same = memcmp(of_a, of_b, (size_t)outer * sizeof *of_a) == 0;
                together |= same;
                apart |= !same;
            }
        }
        if (together && apart)
            return 1;
    }
    return 0;
}

void shape_paths(struct shape *shape, const struct topology *topology, const int *site, int sites)
{
    struct path between = { 0, 0 }, within = { 0, 0 };
    for (int a = 0; a < sites; a++) {
        for (int b = 0; b < sites; b++) {
            const struct path *path = &topology->path[site[a] * topology->sites + site[b]];
            worsen(a == b ? &within : &between, path, a == b ? &usual_within : &usual_between);
        }
    }
    shape->nested = is_nested(topology, site, sites);
    shape->wan_rtt_seconds = between.rtt_seconds;
    shape->wan_bytes_per_second = between.bytes_per_second;
    shape->lan_rtt_seconds = within.rtt_seconds;
    shape->lan_bytes_per_second = within.bytes_per_second;
}
