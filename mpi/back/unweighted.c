#include "unweighted.h"

#include <dlfcn.h>
#include <stddef.h>

#include <mpi.h>

#include "start.h"

#ifdef MPI_UNWEIGHTED
int is_unweighted(const int *weights)
{
    return weights == MPI_UNWEIGHTED;
}

int unweighted(const int *weights)
{
    return weights == NULL || weights == MPI_UNWEIGHTED || weights == MPI_WEIGHTS_EMPTY;
}
#else
static int is(const int *weights, const char *name)
{
    int *const *variable = dlsym(front->mpi, name);
    return variable && weights == *variable;
}

int is_unweighted(const int *weights)
{
    return is(weights, "MPI_UNWEIGHTED");
}

int unweighted(const int *weights)
{
    return weights == NULL || is(weights, "MPI_UNWEIGHTED") || is(weights, "MPI_WEIGHTS_EMPTY");
}
#endif
