/* How a back end starts: what the front's first call sets up, before MPI_Init. */
#ifndef ISTHMUS_START_H
#define ISTHMUS_START_H

#include "../front/front.h"

/* What the front gave. */
extern const struct front *front;

/* Look up the MPI's functions. -1 if one is missing that every MPI has; `why` says which.
 * large_start() never fails: the functions with large counts are in MPI 4 only. */
int real_start(void *mpi, char *why, unsigned why_len);
void large_start(void *mpi);

#endif
