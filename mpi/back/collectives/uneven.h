/* Operations in which each rank has its own count. What a block's length is, its two ends know
 * alone, and so they alone decide how it goes: small ones over the leaders, others directly. */
#ifndef ISTHMUS_UNEVEN_H
#define ISTHMUS_UNEVEN_H

#include "call.h"
#include "block_limits.h"

/* Whether the MPI's own function must speak of these counts. */
int uneven_wrong(const int *counts, const int *displs, int size);

#endif
