#include "real.h"

#include <dlfcn.h>
#include <stdio.h>

#include "start.h"

struct real real;

int real_start(void *mpi, char *why, unsigned why_len)
{
#define X(name) \
    real.name = (__typeof__(real.name))(function)dlsym(mpi, "PMPI_" #name); \
    if (!real.name) { \
        snprintf(why, why_len, "the MPI has no PMPI_" #name); \
        return -1; \
    }
    REAL_CALLS(X)
#undef X
    return 0;
}

int refuse_call(MPI_Comm comm, int error)
{
    real.Comm_call_errhandler(comm, error);
    return error;
}
