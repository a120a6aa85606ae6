/* Latencies and rates of a shape. Pure. */
#ifndef ISTHMUS_PATHS_H
#define ISTHMUS_PATHS_H

#include "choice.h"
#include "topology.h"

/* Gives paths that weren't measured the worst that was measured between sites of the same level. */
void paths_fill(struct topology *topology);

/* The path between two sites of the topology, or within one. What nothing is known of is taken to be usual. */
struct path path_between(const struct topology *topology, int a, int b);

/* Fills the shape's times, rates and levels with the worst among the sites. `ranks[s]`: ranks of
 * each site. Returns 0, or -1 without memory. */
int shape_paths(struct shape *shape, const struct places *places, const int *ranks);

#endif
