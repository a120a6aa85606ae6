/* What the build for SimGrid's MPI (SMPI) has in place of what a real MPI gives. */
#ifndef ISTHMUS_SIMULATED_H
#define ISTHMUS_SIMULATED_H

#include "../back/choice.h"

/* Fills the table of the MPI's own functions. */
void real_fill(void);

/* Whose algorithms SMPI has been told to use, by ISTHMUS_SIMULATED=openmpi|mpich. */
enum family simulated_family(void);

/* For the measuring program: calls that were counted, with or without those that were left to the MPI. */
long isthmus_mpi_counter(int with_native);

/* The same for the algorithm of the last of them. */
int isthmus_mpi_last(char *name, int length);

#endif
