/* What this process knows of its job, between MPI_Init and MPI_Finalize. */
#ifndef ISTHMUS_STATE_H
#define ISTHMUS_STATE_H

#include "tags.h"
#include "topology.h"

/* Reads the topology and tells the other ranks. Collective over MPI_COMM_WORLD. */
void state_start(void);

/* Before MPI_Finalize: from here on every call is native. Collective over MPI_COMM_WORLD
 * if it has a wire. */
void state_end(void);

/* The topology, or NULL: outside MPI_Init and MPI_Finalize, without a file, or if this
 * process's place isn't known. */
const struct topology *state_topology(void);

/* Whether communicators can reach over more than one site. Cheap. */
int state_spans(void);

/* How this MPI's tags are divided. Between MPI_Init and MPI_Finalize. */
const struct tags *state_tags(void);

#endif
