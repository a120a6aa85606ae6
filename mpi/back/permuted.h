/* A communicator with its ranks in another order, for topologies (MPI-4.1, 8). */
#ifndef ISTHMUS_PERMUTED_H
#define ISTHMUS_PERMUTED_H

#include <mpi.h>

#include "reorder.h"
#include "spread.h"

/* Finds an order for the edges between ranks, which all ranks of the communicator know
 * alike, and makes the communicator in which rank_of[v] has rank v. Collective. *made is
 * MPI_COMM_NULL if the order that there is, is as good, or there is no memory to find a
 * better one: the same on all ranks but for the latter. */
int permuted_make(const struct spread *spread, const struct edges *edges, MPI_Comm comm, MPI_Comm *made);

#endif
