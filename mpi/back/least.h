/* What must cross between sites at least, whatever the algorithm. Pure. */
#ifndef ISTHMUS_LEAST_H
#define ISTHMUS_LEAST_H

#include "choice.h"

struct least {
    unsigned long long messages, bytes;
};

/* `bytes` as for choose(). A reduction combines within sites before it crosses. */
struct least least_crossing(enum operation operation, const struct shape *shape, size_t bytes);

#endif
