/* The levels of a communicator's ranks, as depths and colours under MPICH-G2's names. */
#ifndef ISTHMUS_COLORS_H
#define ISTHMUS_COLORS_H

#include "known.h"

/* The levels of every rank: all of the job (0), the named levels, the site, the node. */
int colors_depth(const struct topology *topology);

/* The name of a level: "grid", a named level's, "site" or "node"; NULL if there is none. */
const char *colors_level_name(const struct topology *topology, int level);

/* The level of a name, or -1. */
int colors_level(const struct topology *topology, const char *name);

/* Fills in `depths` and `colors` of a communicator whose ranks' places are known, once.
 * colors[rank][level] is the number of the place where the rank is at this level. Ranks have
 * equal colours at a level if and only if they are at one place. Places are numbered from 0
 * by their lowest rank. Returns -1 without memory. */
int colors_make(struct known *known, const struct topology *topology);

#endif
