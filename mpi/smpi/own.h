/* The MPI's own collectives of MPI_COMM_WORLD, by the algorithms that Open MPI 4.1 or MPICH 5 takes for
 * so many ranks and bytes. SMPI's copies of their choices are of older releases. */
#ifndef ISTHMUS_OWN_COLLECTIVES_H
#define ISTHMUS_OWN_COLLECTIVES_H

#include "messages.h"

int own_Barrier(MPI_Comm comm);
int own_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
int own_Reduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm);
int own_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int own_Gather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
               MPI_Datatype receive_type, int root, MPI_Comm comm);
int own_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                MPI_Datatype receive_type, int root, MPI_Comm comm);
int own_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                  MPI_Datatype receive_type, MPI_Comm comm);

/* The same over a group. Lengths are those of a rank's data or block. */
struct algorithms {
    int (*barrier)(const struct group *group);
    int (*bcast)(const struct group *group, void *bytes, long length, int item_bytes, int root);
    int (*reduce)(const struct group *group, const struct vector *vector, const void *given, void *sum, int root);
    int (*allreduce)(const struct group *group, const struct vector *vector, const void *given, void *sum);
    int (*gather)(const struct group *group, const void *block, long length, void *all, int root);
    int (*scatter)(const struct group *group, const void *all, long length, void *block, int root);
    int (*allgather)(const struct group *group, const void *block, long length, void *all);
};

extern const struct algorithms openmpi_algorithms, mpich_algorithms;

/* The groups of ranks of a node. */
struct nodes {
    struct group node;    /* the ranks of this rank's node */
    struct group leaders; /* the first rank of each node; `me` is that of this rank's node */
    int *of_rank;         /* number of each rank's node, in the order of `leaders` */
    int *within;          /* number of each rank within its node */
};

/* The nodes of MPI_COMM_WORLD. NULL where they aren't known, or each has one rank. */
const struct nodes *nodes_of_world(void);

#endif
