/* What the front and a back end know of each other. No MPI. */
#ifndef ISTHMUS_FRONT_H
#define ISTHMUS_FRONT_H

#include "calls.h"
#include "own.h"

/* Both are installed together; a mismatch means a mixed installation. */
#define FRONT_VERSION 4

/* Any function; cast to its type before it is called. */
typedef void (*function)(void);

struct front {
    int version;            /* FRONT_VERSION */
    void *mpi;              /* dlopen() handle of the MPI that the program has loaded */
    const char *topology;   /* the file `topology` beside the front, which may not exist */
    int *depths_keyval;     /* MPICHX_TOPOLOGY_DEPTHS, for the back end to set */
    int *colors_keyval;     /* MPICHX_TOPOLOGY_COLORS */
};

struct back {
    int version;
    function call[CALLS];   /* by enum call */
    function own[OWN_CALLS_COUNT];  /* by enum own_call */
};

/* The one symbol of a back end. NULL if it can't work with this MPI; `why` says why. */
#define BACK_SYMBOL "isthmus_mpi_back"
typedef const struct back *back_start(const struct front *front, char *why, unsigned why_len);

#endif
