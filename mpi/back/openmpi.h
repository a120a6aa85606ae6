/* Which algorithms Open MPI takes for broadcasts and reductions, since its release 4.1. Of 32 ranks and more, simplified.
 * Pure.
 *
 * Where several ranks share each of several nodes, Open MPI 5 has `han` cross once between nodes, unless it is told
 * otherwise. That isn't known here: then the estimate is too high. */
#ifndef ISTHMUS_OPENMPI_H
#define ISTHMUS_OPENMPI_H

enum pattern {
    BINOMIAL,   /* and trees that are flatter: a k-nomial tree of radix 4 */
    BINARY,
    LINEAR,     /* every rank with the root */
    CHAIN,      /* along the ranks. Open MPI's "pipeline" is one, too: its choice cuts nothing into segments */
    OTHER,      /* a scatter and an allgather */
};

/* `ranks`: two or more. */
enum pattern open_mpi_bcast(int ranks, double bytes);

/* Of an operation that is commutative. */
enum pattern open_mpi_reduce(int ranks, double bytes);

#endif
