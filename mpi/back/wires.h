/* Communicators of the library's own, on which all of its messages travel: one of MPI_COMM_WORLD,
 * and one for each time that worlds have met anew.
 *
 * They are made only inside calls in which the program makes a communicator, too, and of the
 * communicator that it makes its own of. An MPI may give contexts out in order, such as Open MPI by
 * the context of the communicator that the new one is made of. Made elsewhere, they would wait for
 * communicators of other threads, which may come about only after the call that waits. */
#ifndef ISTHMUS_WIRES_H
#define ISTHMUS_WIRES_H

#include <mpi.h>

struct wire {
    MPI_Comm comm;          /* errors are returned */
    MPI_Group processes;
    unsigned long long id;  /* the same at all of its processes, and unlike that of any other wire */
    int holders;
    struct wire *next;
};

/* Takes a communicator over. It lasts until wire_release(). NULL without memory: it is freed. */
struct wire *wires_add(MPI_Comm comm, unsigned long long id);

/* The oldest that has all ranks of a communicator, or NULL; ranks[size] gets theirs on it. It lasts
 * until wire_release(). Local. Ranks may find different ones while another thread makes or frees one.
 * The oldest, so that ranks of one MPI_COMM_WORLD don't stay connected with others that they have met. */
struct wire *wires_find(MPI_Comm comm, int size, int *ranks);

/* It ends with its last holder. */
void wire_release(struct wire *wire);

/* Before MPI_Finalize: frees all communicators. What is still held lasts without one. */
void wires_end(void);

#endif
