/* Collectives of the ranks of the calling one's site, by this library's own messages. The MPI's own
 * would take a communicator of them, which can't be made inside a collective: see wires.h.
 *
 * Ranks are given by their index among those of the site, counts and starts for each of them. What is
 * combined or gathered has been sent on return. What is spread may be read until the call's end, and
 * isn't to be written to until then. */
#ifndef ISTHMUS_SITE_H
#define ISTHMUS_SITE_H

#include "fold.h"

/* The one at `head` goes on when all have come; then all go on when it has come. */
void site_arrive(struct call *call, int head);
void site_leave(struct call *call, int head);

/* Nobody writes to the buffer of the one at `head`. */
void site_bcast(struct call *call, const struct kind *kind, void *buffer, int count, int head);

/* `whole`, `counts` and `starts` are of use at `head` only. One of its parts may be in place. */
void site_gather(struct call *call, const struct kind *kind, const void *own, int own_count, void *whole,
                 const int *counts, const int *starts, int head);
void site_scatter(struct call *call, const struct kind *kind, const void *whole, const int *counts, const int *starts,
                  void *own, int own_count, int head);

/* So many ints from each, in order. `all` is of use at `head` only. */
void site_gather_ints(struct call *call, const int *own, int count, int *all, int head);

/* Each has its part in the buffer, and gets those of the others. Parts follow one another without
 * gaps. Nobody writes to a part that it has. */
void site_allgather(struct call *call, const struct kind *kind, void *buffer, const int *counts, const int *starts);

/* Combines in the order of ranks, unless the operation is commutative. `result` is of use at `head` only. */
void site_reduce(struct call *call, const struct reduction *reduction, const void *send, void *result, int count,
                 int head);

/* The same of a vector of which each gets a part, of so many elements. */
void site_reduce_scatter(struct call *call, const struct reduction *reduction, const void *send, void *part,
                         const int *counts);

#endif
