#include "fortran.h"

#include <dlfcn.h>

#include <mpi.h>

#include "own.h"
#include "start.h"

#if defined(MPICH_VERSION)
/* Handles are the same integers. */
static MPI_Comm from_fortran(int comm)
{
    return comm;
}

static int to_fortran(MPI_Comm comm)
{
    return comm;
}
#else
/* The standard ABI has no Fortran; its integers are what one would have. */
#if defined(OPEN_MPI)
#define FROM "PMPI_Comm_f2c"
#define TO "PMPI_Comm_c2f"
#else
#define FROM "PMPI_Comm_fromint"
#define TO "PMPI_Comm_toint"
#endif

static MPI_Comm from_fortran(int comm)
{
    MPI_Comm (*convert)(int) = (MPI_Comm(*)(int))(function)dlsym(front->mpi, FROM);
    return convert ? convert(comm) : MPI_COMM_NULL;
}

static int to_fortran(MPI_Comm comm)
{
    int (*convert)(MPI_Comm) = (int (*)(MPI_Comm))(function)dlsym(front->mpi, TO);
    return convert ? convert(comm) : 0;
}
#endif

int own_comm_split_f(int comm, const char *type, int key, int *made)
{
    MPI_Comm part = MPI_COMM_NULL;
    int rc = own_comm_split(from_fortran(comm), type, key, &part);
    *made = to_fortran(part);
    return rc;
}

int own_levels_f(int comm)
{
    return own_levels(from_fortran(comm));
}

int own_level_name_f(int comm, int level, char *name, int length)
{
    return own_level_name(from_fortran(comm), level, name, length);
}

int own_place_name_f(int comm, int rank, int level, char *name, int length)
{
    return own_place_name(from_fortran(comm), rank, level, name, length);
}

int own_color_f(int comm, int rank, int level, int *color)
{
    return own_color(from_fortran(comm), rank, level, color);
}

int own_group_f(int comm, int rank, int *group, char *name, int length)
{
    return own_group(from_fortran(comm), rank, group, name, length);
}
