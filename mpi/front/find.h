/* Finds the MPI that the program has loaded, and the back end that fits it. */
#ifndef ISTHMUS_FIND_H
#define ISTHMUS_FIND_H

#include "front.h"

struct found {
    void *mpi;                  /* handle of the loaded MPI */
    const struct back *back;    /* NULL: every call is the MPI's own */
};

/* 0, or -1 while no MPI is loaded. Says on standard error why there is no back end. */
int find_mpi(struct found *found, int *depths_keyval, int *colors_keyval);

#endif
