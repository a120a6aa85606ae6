/* Spreads the rays over all ranks. */
#ifndef SPREAD_H
#define SPREAD_H

#include <mpi.h>

#include "ranks.h"
#include "survey.h"

/* Rays go from the master, over bosses if there are any, to workers, `chunk` at a time, and their times
 * come back the same way. Each rank that traces keeps its part of the mesh. `times` has room for all at
 * rank 0. Collective. */
void spread_by_messages(MPI_Comm comm, const struct ranks *ranks, struct work *work, int chunk,
                        struct result *times);

/* The same through a pool of isthmus (isthmus_pool.h). A task's result has its part of the mesh as well,
 * so that nothing is lost with a rank; rank 0 has the whole mesh in the end. Ends the job if rays can't be
 * traced. Collective. */
void spread_by_pool(MPI_Comm comm, struct work *work, int chunk, struct result *times);

/* Whether Ray2mesh was built with pools. */
extern const int with_pools;

#endif
