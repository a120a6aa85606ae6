/* The whole in pieces, one for each rank, directly between sites. */
#ifndef ISTHMUS_PIECES_H
#define ISTHMUS_PIECES_H

#include "fold.h"

/* Reduce_scatter in lanes: `recv` gets the calling rank's piece, counts[rank] elements. */
void pieces_reduce(struct call *call, const struct reduction *reduction, const int *counts, const void *send,
                   void *recv);

/* Allgather in lanes: `whole` gets the pieces in rank order, of which length[] are the bytes and
 * `total` the sum. */
void pieces_together(struct call *call, const int *length, const char *own, char *whole, size_t total);

#endif
