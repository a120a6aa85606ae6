/* Latencies and rates of a shape. Pure. */
#ifndef ISTHMUS_PATHS_H
#define ISTHMUS_PATHS_H

#include "choice.h"
#include "topology.h"

/* The path between two sites of the topology, or within one. What wasn't measured is taken to be usual. */
struct path path_between(const struct topology *topology, int a, int b);

/* Fills the shape's times, rates and levels with the worst among the sites. `ranks[s]`: ranks of
 * each site. `first`: [sites] scratch. */
void shape_paths(struct shape *shape, const struct places *places, const int *ranks, int *first);

#endif
