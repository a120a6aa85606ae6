/* The collectives with large counts (MPI-4.1, 2.5.8). A call whose counts are small is the
 * ordinary one; else it is the MPI's own with large counts, and without one it fails.
 *
 * All ranks must decide the same, but one may say `2^31 of 1 byte` where another says `1 of
 * 2^31 bytes`. So it isn't the count that decides but the bytes, which are equal where MPI
 * demands equal type signatures; an ordinary call of more bytes has to be native, too. */
#ifndef ISTHMUS_LARGE_H
#define ISTHMUS_LARGE_H

#include <limits.h>

#include <mpi.h>

/* X(name, parameters): with MPI_Count for int, and MPI_Aint for int as a displacement. */
#define LARGE_CALLS(X) \
    X(Bcast, (void *, MPI_Count, MPI_Datatype, int, MPI_Comm)) \
    X(Reduce, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm)) \
    X(Allreduce, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(Gather, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm)) \
    X(Gatherv, (const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, \
                MPI_Datatype, int, MPI_Comm)) \
    X(Scatter, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm)) \
    X(Scatterv, (const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, MPI_Count, \
                 MPI_Datatype, int, MPI_Comm)) \
    X(Allgather, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm)) \
    X(Allgatherv, (const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, \
                   MPI_Datatype, MPI_Comm)) \
    X(Reduce_scatter, (const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(Reduce_scatter_block, (const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm)) \
    X(Alltoall, (const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm)) \
    X(Alltoallv, (const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, const MPI_Count *, \
                  const MPI_Aint *, MPI_Datatype, MPI_Comm))

#define X(name, parameters) int large_##name parameters;
LARGE_CALLS(X)
#undef X

/* The MPI's own, as PMPI_X_c; NULL where it has none. */
struct real_large {
#define X(name, parameters) int(*name) parameters;
    LARGE_CALLS(X)
#undef X
};
extern struct real_large real_large;

/* Whether the MPI's own function with large counts is taken, whatever they are: ranks of one
 * site, or two groups, where this library has no part. */
#define LARGE_OWN(name, comm) (real_large.name && !spread_of(comm))

/* The most bytes that a rank contributes to, or gets from, a call that isn't native. */
#define MESSAGE_MAX INT_MAX

/* Whether a call with these significant arguments is small. A negative count is: the
 * ordinary call says what is wrong with it. */
int large_fits(MPI_Count count, MPI_Datatype datatype);

/* Whether the calling rank is where the arguments of the root are significant. */
int large_at_root(int root, MPI_Comm comm);

#endif
