/* What this process knows of its job, between MPI_Init and MPI_Finalize. */
#ifndef ISTHMUS_STATE_H
#define ISTHMUS_STATE_H

#include "topology.h"

/* Reads the topology and tells the other ranks. Collective over MPI_COMM_WORLD. */
void state_start(void);

/* Before MPI_Finalize: from here on every call is native. Collective over MPI_COMM_WORLD
 * if sub-communicators were made for it. */
void state_end(void);

/* The topology, or NULL: outside MPI_Init and MPI_Finalize, without a file, or if this
 * process's place isn't known. */
const struct topology *state_topology(void);

/* Whether communicators can reach over more than one site. Cheap. */
int state_spans(void);

/* Whether MPI_Finalize has begun, at whose end no communicator can be freed any more. */
int state_ended(void);

#endif
