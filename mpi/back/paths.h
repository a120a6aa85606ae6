/* Latencies and rates of a shape. Pure. */
#ifndef ISTHMUS_PATHS_H
#define ISTHMUS_PATHS_H

#include "choice.h"
#include "topology.h"

/* Fills the shape's times and rates with the worst among `sites` sites of the topology:
 * between each two, and within each. What wasn't measured is taken to be usual. Tells, too,
 * whether the sites are nested. */
void shape_paths(struct shape *shape, const struct topology *topology, const int *site, int sites);

#endif
