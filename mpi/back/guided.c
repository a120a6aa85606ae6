/* MPI_Comm_split_type (MPI-4.1, 7.4.2) by resource types that isthmus knows. */
#include <string.h>

#include "entries.h"
#include "own.h"
#include "real.h"

/* The headers that back ends are compiled with are older than some of the MPIs: the values
 * of Open MPI 5 and of MPICH 5, which their earlier versions don't use otherwise. */
#if defined(OPEN_MPI)
enum { GUIDED = 13, RESOURCE_GUIDED = 14 };
#elif defined(MPICH_VERSION)
enum { GUIDED = 2, RESOURCE_GUIDED = 4 };
#else
enum { GUIDED = MPI_COMM_TYPE_HW_GUIDED, RESOURCE_GUIDED = MPI_COMM_TYPE_RESOURCE_GUIDED };
#endif

/* Whether the info names a resource type of isthmus, which is copied. */
static int isthmus_type(MPI_Info info, char *type)
{
    int found = 0;
    if (info == MPI_INFO_NULL)
        return 0;
    return real.Info_get(info, "mpi_hw_resource_type", MPI_MAX_INFO_VAL - 1, type, &found) == MPI_SUCCESS && found &&
           strncmp(type, TYPE_PREFIX, strlen(TYPE_PREFIX)) == 0;
}

int entry_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *made)
{
    /* A rank that takes no part has to go the same way as the others. MPI wants the info to
     * be the same on all ranks, so that it tells. */
    int guided = split_type == GUIDED || split_type == RESOURCE_GUIDED || split_type == MPI_UNDEFINED;
    char type[MPI_MAX_INFO_VAL];
    if (!guided || comm == MPI_COMM_NULL || !isthmus_type(info, type))
        return real.Comm_split_type(comm, split_type, key, info, made);
    return split_by_type(comm, type, key, split_type != MPI_UNDEFINED, UNKNOWN_IS_NULL, made);
}
