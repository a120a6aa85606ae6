/* The blocks of a message that are under way: when each was sent, and of how many something was heard. */
#ifndef ISTHMUS_PACE_H
#define ISTHMUS_PACE_H

#include "../window.h"
#include "call.h"

struct pace {
    struct window window;
    int sent, heard;      /* blocks so far, in turn */
    double *moment;       /* [blocks] when each was sent */
    int *heard_then;      /* [blocks] and of how many something had been heard then */
};

void pace_make(struct call *call, struct pace *pace, struct window window);

/* Whether there is a next block, and it may be sent. */
int pace_may_send(const struct pace *pace);

/* The next block is being sent. Returns its number. */
int pace_send(struct pace *pace);

/* Something was heard of the next block. */
void pace_hear(struct pace *pace);

#endif
