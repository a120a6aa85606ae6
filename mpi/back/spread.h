/* Communicators that reach over more than one site. */
#ifndef ISTHMUS_SPREAD_H
#define ISTHMUS_SPREAD_H

#include <mpi.h>

#include "choice.h"
#include "layout.h"
#include "topology.h"

/* Making the sub-communicators takes several round trips, and a call gains one or two. So a
 * communicator has them from the first call after so many for which they would be used. */
#define SPREAD_AFTER 4

/* It doubles at most so often. */
#define PUT_OFF_MAX 20

struct spread {
    struct layout layout;
    const struct topology *topology;
    int *node_of;   /* [size] index into the topology's nodes */
    int *sites;     /* [layout.sites] the topology's number of each; made with the shape */
    struct shape shape;   /* for the choice; made at the first collective */
    int has_shape;
    int awaited;    /* calls that were native because of SPREAD_AFTER: the same at all ranks */
    int put_off;    /* how often that was doubled, since a duplicate was under way: the same, too */
    /* Made by spread_connect(): */
    MPI_Comm wire;  /* a duplicate, for this library's own messages; errors are returned */
    int is_native;  /* every call is the MPI's own, at all ranks; see spread_connect() */
    unsigned sequence;  /* of calls that weren't native: the same at all ranks */
    MPI_Comm site;  /* the ranks of the calling rank's site, in order; errors are returned */
};

/* What is known of a communicator: NULL if all of its ranks are at one site, it is an
 * inter-communicator, or where its ranks are isn't known. Local, and the same answer on
 * all ranks (NULL or not). It is kept with the communicator, and freed with it. */
struct spread *spread_of(MPI_Comm comm);

/* Makes the sub-communicators, once per communicator. Collective: all ranks of the
 * communicator call it at the same point. Returns an MPI error code. If one of them has no
 * room for more communicators, none is made, and `is_native` is set at all ranks. If one has a
 * duplicate under way (see idups.h), none is made yet: it is put off. `is_told` is set if the communicator's error handler has been
 * called for the error. */
int spread_connect(struct spread *spread, MPI_Comm comm, int *is_told);

/* Frees them. Collective. */
void spread_disconnect(struct spread *spread);

#endif
