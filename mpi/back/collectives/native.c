/* Stand-ins until an algorithm is written: a definition elsewhere replaces them. */
#include "collectives.h"

#include "../real.h"

#define WEAK __attribute__((weak))

WEAK int coll_Barrier(MPI_Comm c) { return real.Barrier(c); }
WEAK int coll_Bcast(void *b, int n, MPI_Datatype t, int r, MPI_Comm c) { return real.Bcast(b, n, t, r, c); }
WEAK int coll_Reduce(const void *s, void *d, int n, MPI_Datatype t, MPI_Op o, int r, MPI_Comm c) { return real.Reduce(s, d, n, t, o, r, c); }
WEAK int coll_Allreduce(const void *s, void *d, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c) { return real.Allreduce(s, d, n, t, o, c); }
WEAK int coll_Gather(const void *s, int n, MPI_Datatype t, void *d, int m, MPI_Datatype u, int r, MPI_Comm c) { return real.Gather(s, n, t, d, m, u, r, c); }
WEAK int coll_Gatherv(const void *s, int n, MPI_Datatype t, void *d, const int *m, const int *p, MPI_Datatype u, int r, MPI_Comm c) { return real.Gatherv(s, n, t, d, m, p, u, r, c); }
WEAK int coll_Scatter(const void *s, int n, MPI_Datatype t, void *d, int m, MPI_Datatype u, int r, MPI_Comm c) { return real.Scatter(s, n, t, d, m, u, r, c); }
WEAK int coll_Scatterv(const void *s, const int *n, const int *p, MPI_Datatype t, void *d, int m, MPI_Datatype u, int r, MPI_Comm c) { return real.Scatterv(s, n, p, t, d, m, u, r, c); }
WEAK int coll_Allgather(const void *s, int n, MPI_Datatype t, void *d, int m, MPI_Datatype u, MPI_Comm c) { return real.Allgather(s, n, t, d, m, u, c); }
WEAK int coll_Allgatherv(const void *s, int n, MPI_Datatype t, void *d, const int *m, const int *p, MPI_Datatype u, MPI_Comm c) { return real.Allgatherv(s, n, t, d, m, p, u, c); }
WEAK int coll_Reduce_scatter(const void *s, void *d, const int *n, MPI_Datatype t, MPI_Op o, MPI_Comm c) { return real.Reduce_scatter(s, d, n, t, o, c); }
WEAK int coll_Reduce_scatter_block(const void *s, void *d, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c) { return real.Reduce_scatter_block(s, d, n, t, o, c); }
WEAK int coll_Alltoall(const void *s, int n, MPI_Datatype t, void *d, int m, MPI_Datatype u, MPI_Comm c) { return real.Alltoall(s, n, t, d, m, u, c); }
WEAK int coll_Alltoallv(const void *s, const int *n, const int *p, MPI_Datatype t, void *d, const int *m, const int *q, MPI_Datatype u, MPI_Comm c) { return real.Alltoallv(s, n, p, t, d, m, q, u, c); }
