#include "alone.h"

#include "real.h"

static MPI_Comm comm = MPI_COMM_NULL;

/* MPI_Comm_split and not MPI_Comm_dup, which would call the program's attribute functions. */
void alone_start(void)
{
    if (real.Comm_split(MPI_COMM_SELF, 0, 0, &comm) != MPI_SUCCESS)
        comm = MPI_COMM_NULL;
    else
        real.Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

void alone_end(void)
{
    if (comm != MPI_COMM_NULL)
        real.Comm_free(&comm);
}

MPI_Comm alone(void)
{
    return comm;
}
