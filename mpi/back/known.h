/* What is known of a communicator, kept with it as an attribute. */
#ifndef ISTHMUS_KNOWN_H
#define ISTHMUS_KNOWN_H

#include <mpi.h>

#include "spread.h"

struct known {
    int size, rank;
    int *node_of;           /* [size], or NULL: places aren't known, or an inter-communicator */
    int *group_of;          /* [size] or -1: none; as long as node_of */
    int is_oversubscribed;  /* one of the ranks shares processors with more than these are */
    struct spread *spread;  /* NULL: at one site, or not known */
    struct wire *meeting;   /* of the worlds that have met in it, or NULL */
    int *depths;            /* [size] levels of each rank, see colors.h; made when asked for */
    int **colors;           /* [size][depth] */
};

/* Makes the attribute key. After MPI_Init. 0 or -1. */
int known_start(void);
void known_end(void);

/* Local. NULL without a topology, or without memory. */
struct known *known_of(MPI_Comm comm);

/* Frees what is known of a communicator. Local but for a meeting's wire. */
void known_forget(MPI_Comm comm);

/* Has a communicator hold the wire of a meeting of worlds, or NULL, until it is freed. */
void known_hold(MPI_Comm comm, struct wire *meeting);

/* A communicator that the calling thread is freeing. */
struct freeing {
    MPI_Comm comm;
    struct freeing *outer;
};

/* Before and after the MPI frees a communicator: forgets it, but for those that can't be freed.
 * The program's attribute functions, which the MPI calls then, may use it: nothing is made
 * for it any more, and its collectives are native. */
void known_freeing(struct freeing *freeing, MPI_Comm comm);
void known_freed(struct freeing *freeing);

#endif
