/* Who gets its rays from whom. */
#ifndef RANKS_H
#define RANKS_H

#include <mpi.h>

/* A rank with children gives them rays: rank 0, which is the master, or a boss, which gets its own from
 * its parent. One without is a worker. */
struct ranks {
    int parent;
    int children;
    int *child;
    /* How many workers are below each child: 1 for a worker. */
    int *workers;
    int all_bosses;
};

/* Without bosses, all ranks get their rays from rank 0. With them, each site, and each place of a level
 * above, has one if it has three ranks for it (Coti, Herault, Cappello: MPI applications on grids, 2009,
 * 3.1). */
struct ranks ranks_of(MPI_Comm comm, int with_bosses);

void ranks_free(struct ranks *ranks);

#endif
