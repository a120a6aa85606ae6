/* The MPI's own functions under SMPI, and what stands in for those that it lacks. */
#include "../back/real.h"

#include <stdlib.h>
#include <string.h>

#include "simulated.h"

struct real real;

/* Those that SMPI lacks are NULL, and nothing calls them here. */
#define X(name) extern __typeof__(PMPI_##name) PMPI_##name __attribute__((weak));
REAL_CALLS(X)
#undef X

/* Each rank would send to each other one. That takes a simulation of 2,000 ranks minutes. */
static int iallgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                      MPI_Datatype receive_type, MPI_Comm comm, MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    return PMPI_Allgather(send, send_count, send_type, receive, receive_count, receive_type, comm);
}

static int test(MPI_Request *request, int *done, MPI_Status *status)
{
    if (*request != MPI_REQUEST_NULL)
        return PMPI_Test(request, done, status);
    *done = 1;
    return MPI_SUCCESS;
}

static int test_inter(MPI_Comm comm, int *inter)
{
    (void)comm;
    *inter = 0;
    return MPI_SUCCESS;
}

/* Of predefined types, the only ones that are measured. */
static int type_get_true_extent(MPI_Datatype type, MPI_Aint *lb, MPI_Aint *extent)
{
    return PMPI_Type_get_extent(type, lb, extent);
}

static int type_get_envelope(MPI_Datatype type, int *integers, int *addresses, int *types, int *combiner)
{
    (void)type;
    *integers = *addresses = *types = 0;
    *combiner = MPI_COMBINER_NAMED;
    return MPI_SUCCESS;
}

void real_fill(void)
{
#define X(name) real.name = PMPI_##name;
    REAL_CALLS(X)
#undef X
    real.Iallgather = iallgather;
    real.Test = test;
    real.Comm_test_inter = test_inter;
    real.Type_get_true_extent = type_get_true_extent;
    real.Type_get_envelope = type_get_envelope;
}

enum family simulated_family(void)
{
    const char *mpi = getenv("ISTHMUS_SIMULATED");
    if (mpi && strcmp(mpi, "openmpi") == 0)
        return FAMILY_OPENMPI;
    return mpi && strcmp(mpi, "mpich") == 0 ? FAMILY_MPICH : FAMILY_ANY;
}

int refuse_call(MPI_Comm comm, int error)
{
    (void)comm;
    return error;
}
