/* How much of a large message is under way between sites at a time. Pure.
 *
 * Several connections that each send as fast as they can overrun the queue of the link that they share, and what is
 * lost there costs more than waiting. So a message is cut into blocks, of which only some are sent before something is
 * heard of the first one: what fills the link as it was measured, and one more. Where more comes through than that
 * link would carry, more blocks are sent ahead, up to a fifth of the message in a round trip: more would gain little, and
 * MPIs have many messages under way only at a cost.
 *
 * Source: N. Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14 (2016): a window of the delivery
 * rate times the round trip of the path. */
#ifndef ISTHMUS_WINDOW_H
#define ISTHMUS_WINDOW_H

#include "choice.h"

struct window {
    int blocks;         /* of the message */
    int ahead;          /* blocks that may be under way, at least 1 */
    int most;           /* that it grows to */
    double seconds;     /* in which something is heard of a block, if it waits in no queue */
};

/* Of a message of so many blocks, each of which is `block_bytes` over the busiest site's link. What is heard comes
 * after so many round trips: 1 for an answer, 0.5 for what others send at the same time. */
struct window window_make(const struct shape *shape, int blocks, double block_bytes, double trips);

/* Something was heard of a block, so many seconds after it was sent. Since then it was so of `heard` blocks, this one
 * included. */
void window_heard(struct window *window, int heard, double seconds);

#endif
