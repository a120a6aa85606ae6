/* A communicator with its ranks in another order, for topologies (MPI-4.1, 8). */
#ifndef ISTHMUS_PERMUTED_H
#define ISTHMUS_PERMUTED_H

#include <mpi.h>

#include "reorder.h"
#include "spread.h"

/* Whether the job asks for it. Without that, ranks stay as they are: programs go on by those of the
 * communicator that a topology is made of, though MPI lets them change, since MPICH never changes them. */
int permuted_wanted(void);

/* Finds an order for the edges between ranks, and counts what it saves. If it is wanted, which takes
 * all ranks and that they know the edges alike, it makes the communicator in which rank_of[v] has
 * rank v: then it is collective. *made is MPI_COMM_NULL if it isn't wanted, if the order that there
 * is, is as good, or if there is no memory to find a better one: the same on all ranks but for the
 * latter. */
int permuted_make(const struct spread *spread, const struct edges *edges, MPI_Comm comm, MPI_Comm *made);

#endif
