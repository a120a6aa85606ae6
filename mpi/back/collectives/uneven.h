/* Operations in which each rank has its own count. What a block's length is, its two ends know
 * alone, and so they alone decide how it goes: small ones over the leaders, others directly. */
#ifndef ISTHMUS_UNEVEN_H
#define ISTHMUS_UNEVEN_H

#include "call.h"
#include "block_limits.h"
#include "kind.h"

/* Whether the MPI's own function must speak of these counts. */
int uneven_wrong(const int *counts, const int *displs, int size);

/* DIRECT: the root receives blocks of several ranks at once. Blocks may have more than 2 GiB. `counts`, `displs` and
 * the root's `kind` count at the root only; `own_kind` doesn't where the root's block is in place. */
void direct_gather(struct call *call, const struct kind *own_kind, const void *send, int send_count,
                   const struct kind *kind, void *recv, const int *counts, const int *displs, int root);

#endif
