/* Operations in which each rank has its own count. What a block's length is, its two ends know
 * alone, and so they alone decide how it goes: small ones over the leaders, others directly. */
#ifndef ISTHMUS_UNEVEN_H
#define ISTHMUS_UNEVEN_H

#include "call.h"

/* A block is large if its way over the leaders would take longer than its own crossing:
 * then MPIs ask the receiver before they send, so that nothing is won by fewer messages. */
#define LARGE_BLOCK_BYTES 65536

static inline int is_large(size_t bytes)
{
    return bytes > LARGE_BLOCK_BYTES;
}

/* Whether the MPI's own function must speak of these counts. */
int uneven_wrong(const int *counts, const int *displs, int size);

#endif
