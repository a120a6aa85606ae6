/* How long a block of an uneven operation may be to go over the leaders. Both ends of a block know
 * it, and so do all ranks. What one rank holds of them at most is counted in an int. No MPI. */
#ifndef ISTHMUS_BLOCK_LIMITS_H
#define ISTHMUS_BLOCK_LIMITS_H

#include <limits.h>
#include <stddef.h>

/* MPI_Gatherv and MPI_Scatterv: a block is large if its way over the leaders would take longer than
 * its own crossing: then MPIs ask the receiver before they send, so that nothing is won by fewer
 * messages. One rank may hold those of all. */
#define LARGE_BLOCK_BYTES 65536

static inline int is_large(size_t bytes, int size)
{
    return bytes > LARGE_BLOCK_BYTES || bytes > (size_t)(INT_MAX / size);
}

/* MPI_Alltoallv, where a leader holds at most some MiB, or one of each of its ranks for each rank. */
static inline size_t small_bytes(int size)
{
    size_t pairs = (size_t)size * (size_t)size, share = ((size_t)16 << 20) / pairs, most = INT_MAX / pairs;
    size_t bytes = share < 256 ? 256 : share > 4096 ? 4096 : share;
    return bytes < most ? bytes : most;
}

/* Whether a leader can count the pairs of ranks at all. */
static inline int has_countable_pairs(int size)
{
    return small_bytes(size) > 0;
}

#endif
