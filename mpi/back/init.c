/* MPI_Init, MPI_Init_thread, MPI_Finalize (MPI-4.1, 11.2), how communicators end, and where worlds meet. */
#include "entries.h"
#include "known.h"
#include "real.h"
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

static int free_by(int (*own)(MPI_Comm *), MPI_Comm *comm)
{
    struct freeing freeing;
    known_freeing(&freeing, comm ? *comm : MPI_COMM_NULL);
    int rc = own(comm);
    known_freed(&freeing);
    return rc;
}

int entry_Comm_free(MPI_Comm *comm)
{
    return free_by(real.Comm_free, comm);
}

int entry_Comm_disconnect(MPI_Comm *comm)
{
    return free_by(real.Comm_disconnect, comm);
}

int entry_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *made)
{
    int rc = real.Intercomm_merge(intercomm, high, made);
    if (rc == MPI_SUCCESS)
        known_hold(*made, worlds_meet(intercomm, high, *made));
    return rc;
}
