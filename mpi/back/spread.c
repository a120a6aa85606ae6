#include "spread.h"

#include "idups.h"
#include "known.h"
#include "real.h"
#include "state.h"

struct spread *spread_of(MPI_Comm comm)
{
    if (!state_spans())
        return NULL;
    const struct known *known = known_of(comm);
    return known ? known->spread : NULL;
}

/* MPI_Comm_split and not MPI_Comm_dup, which would call the program's attribute functions. */
static int split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    int rc = real.Comm_split(comm, color, key, made);
    return rc == MPI_SUCCESS ? real.Comm_set_errhandler(*made, MPI_ERRORS_RETURN) : rc;
}

/* Communicators that are connected in this process. Each takes two more; MPICH has room for about
 * 2,000, which the program's own are to have. */
#define CONNECTED_MAX 256
static _Atomic int connected;

/* Whether all ranks have room for one more, and none has a duplicate under way. */
static int agree(struct spread *spread, MPI_Comm comm)
{
    int room = connected < CONNECTED_MAX && !idups_pending(), all = 0;
    int rc = real.Allreduce(&room, &all, 1, MPI_INT, MPI_MIN, comm);
    spread->is_native = !all;
    return rc;
}

int spread_connect(struct spread *spread, MPI_Comm comm, int *is_told)
{
    const struct layout *layout = &spread->layout;
    if (spread->site != MPI_COMM_NULL || spread->is_native)
        return MPI_SUCCESS;
    /* These two calls are on the program's own communicator. */
    int rc = agree(spread, comm);
    if (rc == MPI_SUCCESS && spread->is_native)
        return rc;
    if (rc == MPI_SUCCESS && spread->wire == MPI_COMM_NULL)
        rc = split(comm, 0, layout->rank, &spread->wire);
    *is_told = rc != MPI_SUCCESS;
    if (rc == MPI_SUCCESS)
        rc = split(spread->wire, layout->site_of[layout->rank], layout->rank, &spread->site);
    connected += spread->site != MPI_COMM_NULL;
    return rc;
}

void spread_disconnect(struct spread *spread)
{
    connected -= spread->site != MPI_COMM_NULL;
    if (spread->site != MPI_COMM_NULL)
        real.Comm_free(&spread->site);
    if (spread->wire != MPI_COMM_NULL)
        real.Comm_free(&spread->wire);
}
