/* MPI_Init, MPI_Init_thread, MPI_Finalize (MPI-4.1, 11.2), and where worlds meet. */
#include "entries.h"
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

int entry_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *made)
{
    int rc = real.Intercomm_merge(intercomm, high, made);
    if (rc == MPI_SUCCESS)
        worlds_meet(*made);
    return rc;
}
