/* Where processes are, those of MPI_COMM_WORLD and those of other worlds that this process
 * has met in MPI_Intercomm_merge. */
#ifndef ISTHMUS_WORLDS_H
#define ISTHMUS_WORLDS_H

#include <limits.h>
#include <mpi.h>

#include "topology.h"
#include "wires.h"

/* What a process tells of itself. Processes of another build exchange records with these, and read the hash
 * and the node in them: neither these nor the size change. */
struct record {
    unsigned long long hash;    /* of its topology; 0 without one */
    long long node;             /* index into the topology's nodes, or one of these */
    unsigned long long set;     /* of processors: see processors.h */
    short group;                /* index into the topology's groups, or -1 */
    short site;                 /* index into the topology's sites; -1 without a place */
    unsigned short processors;  /* of the set */
    unsigned short is_oversubscribed; /* in its MPI_COMM_WORLD; filled in by worlds_start() */
    /* Filled in when they are exchanged: */
    unsigned long long wire;    /* the id of a wire that has all of these processes; 0 without one */
    unsigned long long id;      /* for a new wire: that of the first process is taken */
};
_Static_assert(sizeof(struct record) == 48 && GROUPS_MAX <= SHRT_MAX && SITES_MAX <= SHRT_MAX, "a record's size");
enum { NO_PLACE = -1, NO_TOPOLOGY = -2 };

/* Exchanges the records of MPI_COMM_WORLD, and makes its wire if it reaches over sites. Collective; every process with this library
 * takes part, even without a topology, so that none waits for another. Returns the lowest
 * rank whose record has no node or another hash than that of rank 0; -1 if there is none,
 * or if no rank has a topology. */
int worlds_start(const struct record *own);

/* Exchanges the records of a communicator in which worlds meet, which MPI_Intercomm_merge has made
 * with these arguments. Collective; processes that haven't called worlds_start() take part, too.
 * Returns the wire of the meeting, for the communicator to hold, or NULL if none is needed. */
struct wire *worlds_meet(MPI_Comm intercomm, int high, MPI_Comm made);

/* The node and the group of each rank of an intra-communicator, and whether one of them shares processors with
 * more ranks than these are. Local. Returns 0, or -1 if the node of one of them isn't known. Processes know each
 * other only if their topologies are equal, so that the answer, -1 or not, is the same on all ranks. */
int worlds_nodes(MPI_Comm comm, int size, int *node, int *group, int *is_oversubscribed);

void worlds_end(void);

#endif
