/* What an algorithm defines that has a file of its own: one of these for each operation that has it, such as
 * scattered_bcast(). The others are in the files of the operations. */
#ifndef ISTHMUS_CARRIED_H
#define ISTHMUS_CARRIED_H

#include "fold.h"

/* _bcast: `stream` is the message at the root, and room for it elsewhere.
 * _reduce: `count` elements of `send`; `recv` is of use at the root only. */
#define X(value, name, ...) \
    void name##_bcast(struct call *call, char *stream, int length, int root); \
    void name##_reduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count, int root); \
    void name##_allreduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count);
ALGORITHMS_OF(X)
#undef X

#endif
