/* Which algorithms Open MPI takes for broadcasts, reductions and allgathers, since its release 4.1. Of 256 ranks and more,
 * simplified: a few sizes in between go by others.
 * Pure.
 *
 * Where several ranks share each of several nodes, Open MPI 5 has `han` cross once between nodes, unless it is told
 * otherwise. That isn't known here: then the estimate is too high. */
#ifndef ISTHMUS_OPENMPI_H
#define ISTHMUS_OPENMPI_H

enum pattern {
    BINOMIAL,
    KNOMIAL,    /* of radix 4 */
    BINARY,
    LINEAR,     /* every rank with the root */
    CHAIN,      /* along the ranks. Open MPI's "pipeline" is one, too: its choice cuts nothing into segments */
    RING,       /* a block goes to the next rank in each step */
    NEIGHBOURS, /* two blocks are swapped with one neighbour, then with the other one */
    OTHER,      /* of a broadcast, a scatter and an allgather; of an allgather, recursive doubling or Bruck's */
};

/* `ranks`: two or more. */
enum pattern open_mpi_bcast(int ranks, double bytes);

/* Of an operation that is commutative. */
enum pattern open_mpi_reduce(int ranks, double bytes);

/* `bytes` from each rank. */
enum pattern open_mpi_allgather(int ranks, double bytes);

#endif
