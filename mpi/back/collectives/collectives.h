/* The collectives that the library takes over. Each has the arguments and the meaning of
 * the MPI function of its name, and calls the MPI's own where that is as good. */
#ifndef ISTHMUS_COLLECTIVES_H
#define ISTHMUS_COLLECTIVES_H

#include <mpi.h>

int coll_Barrier(MPI_Comm comm);
int coll_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm);
int coll_Reduce(const void *send, void *recv, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm);
int coll_Allreduce(const void *send, void *recv, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);
int coll_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                MPI_Datatype recv_type, int root, MPI_Comm comm);
int coll_Gatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *recv_counts,
                 const int *displs, MPI_Datatype recv_type, int root, MPI_Comm comm);
int coll_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                 MPI_Datatype recv_type, int root, MPI_Comm comm);
int coll_Scatterv(const void *send, const int *send_counts, const int *displs, MPI_Datatype send_type, void *recv,
                  int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
int coll_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm);
int coll_Allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *recv_counts,
                    const int *displs, MPI_Datatype recv_type, MPI_Comm comm);
int coll_Reduce_scatter(const void *send, void *recv, const int *recv_counts, MPI_Datatype datatype, MPI_Op op,
                        MPI_Comm comm);
int coll_Reduce_scatter_block(const void *send, void *recv, int recv_count, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm);
int coll_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm);
int coll_Alltoallv(const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
                   void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm);

#endif
