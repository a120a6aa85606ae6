/* Communicators that reach over more than one site. */
#ifndef ISTHMUS_SPREAD_H
#define ISTHMUS_SPREAD_H

#include <mpi.h>

#include "choice.h"
#include "layout.h"
#include "topology.h"
#include "wires.h"

/* Before their first message the ranks of a communicator tell each other their numbers, which takes
 * a collective, and a call gains one or two crossings. So they do it after so many calls, at the first
 * one that isn't native. */
#define SPREAD_AFTER 4

/* How a rank of the communicator is reached on the wire. */
struct peer {
    int rank;       /* its rank there */
    int number;     /* by which it knows the communicator: see tags.h */
};

struct spread {
    struct layout layout;
    const struct topology *topology;
    int *node_of;   /* [size] index into the topology's nodes */
    int is_oversubscribed;  /* one of the ranks shares processors with more than these are */
    int *sites;     /* [layout.sites] the topology's number of each; made with the shape */
    struct shape shape;   /* for the choice; made at the first collective */
    int has_shape;
    int first_calls;   /* so far, up to SPREAD_AFTER: the same at all ranks */
    /* Made by spread_connect(): */
    struct peer *peers;     /* [size] */
    struct wire *wire;      /* on which messages travel, with all communicators of the same processes */
    int is_native;          /* every call is the MPI's own, at all ranks */
    unsigned sequence;      /* of calls that weren't native: the same at all ranks */
    int has_failed;         /* messages of a call that has failed may still be under way */
};

/* What is known of a communicator: NULL if all of its ranks are at one site, it is an
 * inter-communicator, or where its ranks are isn't known. Local, and the same answer on
 * all ranks (NULL or not). It is kept with the communicator, and freed with it. */
struct spread *spread_of(MPI_Comm comm);

/* Has the ranks tell each other their numbers, once per communicator. Collective: all ranks of the
 * communicator call it at the same point. Makes no communicator. Returns an MPI error code. If one of
 * the ranks has no number left, or they have no wire in common, `is_native` is set at all of them.
 * `is_told` is set if the communicator's error handler has been called for the error. */
int spread_connect(struct spread *spread, MPI_Comm comm, int *is_told);

/* Gives the own number back. Local. */
void spread_disconnect(struct spread *spread);

/* The tag of a message to the rank whose number it is, in the call that goes on. */
int spread_tag(const struct spread *spread, int number, int of_call);

#endif
