/* MPI_Init, MPI_Init_thread, MPI_Finalize (MPI-4.1, 11.2), and where worlds meet. */
#include "entries.h"
#include "real.h"
#include "spread.h"
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
int entry_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
    struct spread *spread = spread_of(comm);
    if (spread && spread->site == MPI_COMM_NULL)
        spread->is_native = 1;
    return real.Comm_idup(comm, made, request);
}

int entry_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *made)
{
    int rc = real.Intercomm_merge(intercomm, high, made);
    if (rc == MPI_SUCCESS)
        worlds_meet(*made);
    return rc;
}
