/* Which algorithm a collective takes. Pure: every rank decides the same without talking,
 * since all that goes in is the same on all ranks. */
#ifndef ISTHMUS_CHOICE_H
#define ISTHMUS_CHOICE_H

#include <stddef.h>

enum operation {
    OP_BARRIER, OP_BCAST, OP_REDUCE, OP_ALLREDUCE, OP_GATHER, OP_SCATTER, OP_ALLGATHER,
    OP_REDUCE_SCATTER, OP_ALLTOALL, OPERATIONS
};

enum algorithm {
    NATIVE,     /* the MPI's own */
    LEADERS,    /* once over each crossing, by one rank of each site */
    SEGMENTS,   /* the same, cut into segments that follow one another */
    LANES       /* by many ranks of each site at once, each with its share */
};

/* A communicator over sites, as the choice sees it. */
struct shape {
    int size;                  /* ranks */
    int sites;
    int smallest, largest;     /* ranks at the smallest and at the largest site */
    double wan_rtt_seconds;    /* the longest between two of its sites */
    double wan_bytes_per_second; /* the least, for one connection */
    double lan_rtt_seconds;    /* within a site */
    double lan_bytes_per_second;
};

/* `bytes`: what one rank contributes, or, for Bcast, the message. `commutative`: of a
 * reduction's operation. */
enum algorithm choose(enum operation operation, const struct shape *shape, size_t bytes, int commutative);

/* The time that an algorithm would take, in seconds; what choose() compares. */
double predicted_seconds(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes);

const char *operation_name(enum operation operation);
const char *algorithm_name(enum algorithm algorithm);

#endif
