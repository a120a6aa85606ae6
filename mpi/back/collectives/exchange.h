/* Blocks from every rank to every rank: all that one site has for another crosses as one
 * message, between their leaders. Sites exchange directly: nothing is saved by passing on,
 * since no two blocks are the same. */
#ifndef ISTHMUS_EXCHANGE_H
#define ISTHMUS_EXCHANGE_H

#include "call.h"

/* `sends` and `receives`: [size] the bytes for and from each rank; `out` and `in`: these blocks,
 * in rank order, without gaps. */
void exchange(struct call *call, const int *sends, const int *receives, const char *out, char *in);

#endif
