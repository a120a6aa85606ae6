/* Where processes are, those of MPI_COMM_WORLD and those of other worlds that this process
 * has met in MPI_Intercomm_merge. */
#ifndef ISTHMUS_WORLDS_H
#define ISTHMUS_WORLDS_H

#include <mpi.h>

/* What a process tells of itself. */
struct record {
    unsigned long long hash;    /* of its topology; 0 without one */
    long long node;             /* index into the topology's nodes, or one of these */
    long long group;            /* index into the topology's groups, or -1 */
};
enum { NO_PLACE = -1, NO_TOPOLOGY = -2 };

/* Exchanges the records of MPI_COMM_WORLD. Collective; every process with this library
 * takes part, even without a topology, so that none waits for another. Returns the lowest
 * rank whose record has no node or another hash than that of rank 0; -1 if there is none,
 * or if no rank has a topology. */
int worlds_start(const struct record *own);

/* Exchanges the records of a communicator in which worlds meet. Collective. */
void worlds_meet(MPI_Comm comm);

/* The node and the group of each rank of an intra-communicator. Local. Returns 0, or -1 if
 * the node of one of them isn't known. Processes know each other only if their topologies are equal, so that the
 * answer, -1 or not, is the same on all ranks. */
int worlds_nodes(MPI_Comm comm, int size, int *node, int *group);

void worlds_end(void);

#endif
