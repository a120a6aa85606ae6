/* CHAIN: one rank of each site passes pieces on to the one of the next site. A site's link carries
 * each piece once in and once out, however many sites there are, and no two senders meet at one.
 *
 * Source: C. Coti, T. Herault, F. Cappello, "MPI Applications on Grids: A Topology Aware Approach",
 * Euro-Par 2009, section 4.2, for the cut into pieces; the pipelines of flat ranks are Open MPI's. */
#ifndef ISTHMUS_CHAIN_H
#define ISTHMUS_CHAIN_H

#include "fold.h"

/* `stream` is the message at the root, and room for it elsewhere. */
void chain_bcast(struct call *call, char *stream, size_t length, int root);

/* The operation commutes. `recv` is of use at the root only. */
void chain_reduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count,
                  int root);

/* The operation commutes. What is summed up at one end comes back while the rest is summed up. */
void chain_allreduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count);

#endif
