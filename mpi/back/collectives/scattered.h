/* SCATTERED: every rank has a piece of the whole, and all put the pieces together. Between
 * sites the pieces travel directly, so that a link carries the data twice at most, however many
 * sites there are: the bound of reduce-scatter and allgather, one after the other.
 *
 * Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; for
 * Bcast, M. Barnett et al., "Interprocessor Collective Communication Library", SHPCC 1994. */
#ifndef ISTHMUS_SCATTERED_H
#define ISTHMUS_SCATTERED_H

#include "fold.h"

/* `stream` is the message at the root, and room for it elsewhere. */
void scattered_bcast(struct call *call, char *stream, int length, int root);

/* `count` elements of `send`; `recv` is of use at the root only. */
void scattered_reduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count,
                      int root);

void scattered_allreduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count);

#endif
