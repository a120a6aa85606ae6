/* MPI_UNWEIGHTED and MPI_WEIGHTS_EMPTY (MPI-4.1, 8.5.4), which in MPICH are variables of
 * its library. */
#ifndef ISTHMUS_UNWEIGHTED_H
#define ISTHMUS_UNWEIGHTED_H

/* Whether they are MPI_UNWEIGHTED, which all ranks give or none (MPI-4.1, 8.5.4). A rank without
 * edges may give MPI_WEIGHTS_EMPTY in a graph with weights. */
int is_unweighted(const int *weights);

/* Whether a list of weights is none. */
int unweighted(const int *weights);

#endif
