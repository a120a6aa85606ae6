/* Duplicates under way (MPI_Comm_idup). Until one is done, Open MPI can't make another
 * communicator, of whatever ranks, unless all ranks of the former have started it. A rank of the
 * latter that hasn't would be waited for, while it waits itself. */
#ifndef ISTHMUS_IDUPS_H
#define ISTHMUS_IDUPS_H

#include <mpi.h>

/* Before the MPI's call, and after it: what it has returned, and the communicator that is being
 * made. Returns the former. */
void idups_begin(void);
int idups_started(int code, const MPI_Comm *made);

/* The program uses a communicator, or frees it: if it is a duplicate, it is done. Cheap. */
void idups_used(MPI_Comm comm);

/* Whether a duplicate may be under way in this process. One that the program has waited for,
 * and hasn't used since in a call that this library sees, counts as if it were. */
int idups_pending(void);

#endif
