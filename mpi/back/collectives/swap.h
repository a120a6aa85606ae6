/* Messages to and from ranks of other sites at the same time, cut into equally many blocks. What is sent waits for what
 * comes: so the links' queues don't overflow, without any message that says so. A rank sends a block once it has the
 * block that came so many blocks before: see window.h. As all do so, none is further ahead of another than that. */
#ifndef ISTHMUS_SWAP_H
#define ISTHMUS_SWAP_H

#include "kind.h"
#include "pace.h"

/* A message. At most one goes from a rank to another. Both ends say as many elements. */
struct flow {
    int rank;
    char *buffer;
    int count;
};

struct swap {
    struct kind kind;
    const struct flow *out, *in;
    int outs, ins;
    struct pace pace;
    int *arrived;    /* [blocks * ins] */
};

/* Starts to receive. `bytes` go from a rank to each other site, in the mean: it is the same at all ranks. */
void swap_begin(struct call *call, struct swap *swap, const struct kind *kind, const struct flow *out, int outs,
                const struct flow *in, int ins, size_t bytes);

/* Sends what may be sent, and waits for the next block of all messages that come. Returns its number, or -1 if all
 * blocks were there already, or after an error. */
int swap_next(struct call *call, struct swap *swap);

/* Where a block of a message of `count` elements begins. */
int swap_start(const struct swap *swap, int block, int count);

#endif
