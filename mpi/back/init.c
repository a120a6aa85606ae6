/* MPI_Init, MPI_Init_thread, MPI_Finalize (MPI-4.1, 11.2), and where worlds meet. */
#include <dlfcn.h>

#include "entries.h"
#include "real.h"
#include "spread.h"
#include "start.h"
#include "state.h"
#include "worlds.h"

int entry_Init(int *argc, char ***argv)
{
    int rc = real.Init(argc, argv);
    if (rc == MPI_SUCCESS)
        state_start();
    return rc;
}

int entry_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int rc = real.Init_thread(argc, argv, required, provided);
    if (rc == MPI_SUCCESS)
        state_start();
    return rc;
}

int entry_Finalize(void)
{
    state_end();
    return real.Finalize();
}

/* A communicator that is being duplicated can't be split at the same time (Open MPI waits for
 * ever). All ranks call both in the same order, so that all of them stay native. */
static void stay_unsplit(MPI_Comm comm)
{
    struct spread *spread = spread_of(comm);
    if (spread && spread->site == MPI_COMM_NULL)
        spread->is_native = 1;
}

int entry_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
    stay_unsplit(comm);
    return real.Comm_idup(comm, made, request);
}

/* MPI 4 has it. The hints are such that an MPI may do without. */
int entry_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *made, MPI_Request *request)
{
    int (*own)(MPI_Comm, MPI_Info, MPI_Comm *, MPI_Request *) =
        (int (*)(MPI_Comm, MPI_Info, MPI_Comm *, MPI_Request *))(function)dlsym(front->mpi, "PMPI_Comm_idup_with_info");
    stay_unsplit(comm);
    return own ? own(comm, info, made, request) : real.Comm_idup(comm, made, request);
}

int entry_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *made)
{
    int rc = real.Intercomm_merge(intercomm, high, made);
    if (rc == MPI_SUCCESS)
        worlds_meet(*made);
    return rc;
}
