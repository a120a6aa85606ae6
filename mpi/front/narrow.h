/* Large counts where the MPI counts in ints and there is no back end, which would do better:
 * programs such as mpi4py take MPI_X_c wherever the symbol is, and the front has it. */
#ifndef ISTHMUS_NARROW_H
#define ISTHMUS_NARROW_H

#include "calls.h"
#include "words.h"

/* Calls the ordinary function in place of `name`, "PMPI_X_c". A count that no int holds, and
 * an inter-communicator, whose roots the front can't tell, are FAILED. */
word narrow_call(void *mpi, enum call call, const char *name, const word *arguments);

#endif
