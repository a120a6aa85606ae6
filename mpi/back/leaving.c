#include "leaving.h"

#include <stddef.h>

#include "real.h"

/* MPICH's MPI_Finalize waits for the other processes outside its progress engine, and then answers no message. A rank
 * that ends a collective later would wait for its last large messages to this one for ever. In a barrier they are
 * answered. */
#if defined OPEN_MPI || defined SIMULATED
void leaving_start(void)
{
}
#else
static int meet(MPI_Comm self, int key, void *value, void *state)
{
    (void)self, (void)key, (void)value, (void)state;
    real.Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    real.Barrier(MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

/* MPI_Finalize calls the functions of MPI_COMM_SELF's attributes first, the one that was set last before the others. So
 * this one comes after the program's, which may still communicate. */
void leaving_start(void)
{
    int key;
    if (real.Comm_create_keyval(MPI_COMM_NULL_COPY_FN, meet, &key, NULL) != MPI_SUCCESS)
        return;
    real.Comm_set_attr(MPI_COMM_SELF, key, NULL);
    real.Comm_free_keyval(&key);
}
#endif
