/* The collectives with large counts (MPI-4.1, 2.5.8). */
#ifndef ISTHMUS_LARGE_H
#define ISTHMUS_LARGE_H

#include <mpi.h>

int large_Bcast(void *buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm);

#endif
