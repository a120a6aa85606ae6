/* What the MPI says of arguments, asked by the calling rank alone. */
#ifndef ISTHMUS_ALONE_H
#define ISTHMUS_ALONE_H

#include <mpi.h>

/* Makes the communicator, and frees it. In MPI_Init and MPI_Finalize. */
void alone_start(void);
void alone_end(void);

/* A communicator of the calling rank alone, with MPI_ERRORS_RETURN, or MPI_COMM_NULL. */
MPI_Comm alone(void);

/* Whether the MPI refuses a call on alone(), which mustn't change anything if it is taken.
 *
 * This is for buffers that are sent from where they are received. MPI forbids them (MPI-4.1,
 * 2.3), but an MPI refuses them in some calls and takes them in others. Only the rank that gives
 * them knows; if it left the call to the MPI, and the MPI took it, the others would wait. */
#define REFUSED(expression) (alone() != MPI_COMM_NULL && (expression) != MPI_SUCCESS)

/* Whether the MPI refuses a datatype, or an operation on a valid one. Functions such as MPI_Type_size
 * have no communicator: of handles that aren't valid they tell the error handler of
 * MPI_COMM_WORLD, which mostly ends the program. Open MPI's handles are addresses, of which it can't tell. */
int is_bad_type(MPI_Datatype type);
int is_bad_op(MPI_Op op, MPI_Datatype type);

/* Whether a block is sent from where it is received. If so, a call that moves it changes nothing. */
static inline int is_equal(const void *send, int send_count, MPI_Datatype send_type, const void *recv, int recv_count,
                           MPI_Datatype recv_type)
{
    return send == recv && send_count == recv_count && send_type == recv_type;
}

#endif
