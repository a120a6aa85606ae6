/* Where ranks run, for programs that ask by isthmus_mpi.h: as the real front and back have it. */
#include <mpi.h>
#include <stdio.h>

#include "../back/colors.h"
#include "../back/known.h"
#include "../back/state.h"

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int isthmus_mpi_active(void);
PUBLIC int isthmus_mpi_levels(MPI_Comm comm);
PUBLIC int isthmus_mpi_level_name(MPI_Comm comm, int level, char *name, int length);
PUBLIC int isthmus_mpi_color(MPI_Comm comm, int rank, int level, int *color);

int isthmus_mpi_active(void)
{
    return state_topology() != NULL;
}

int isthmus_mpi_levels(MPI_Comm comm)
{
    (void)comm;
    return colors_depth(state_topology());
}

int isthmus_mpi_level_name(MPI_Comm comm, int level, char *name, int length)
{
    (void)comm;
    const char *found = colors_level_name(state_topology(), level);
    return found && snprintf(name, (size_t)length, "%s", found) < length ? MPI_SUCCESS : MPI_ERR_ARG;
}

int isthmus_mpi_color(MPI_Comm comm, int rank, int level, int *color)
{
    struct known *known = known_of(comm);
    if (!known || !known->node_of || colors_make(known, state_topology()) != 0)
        return MPI_ERR_OTHER;
    if (rank < 0 || rank >= known->size || level < 0 || level >= known->depths[rank])
        return MPI_ERR_ARG;
    *color = known->colors[rank][level];
    return MPI_SUCCESS;
}
