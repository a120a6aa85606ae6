/* How ranks leave MPI_Finalize (MPI-4.1, 11.2.4). */
#ifndef ISTHMUS_LEAVING_H
#define ISTHMUS_LEAVING_H

/* In MPI_Init, by all ranks of MPI_COMM_WORLD or by none: they are to meet in MPI_Finalize once they have ended their
 * calls. With Open MPI they do so by themselves. */
void leaving_start(void);

#endif
