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

/* Whether all ranks have room for one more. If one has a duplicate under way, it is put off. */
static int agree(struct spread *spread, MPI_Comm comm, int *go)
{
    enum { NO_ROOM, PUT_OFF, GO };
    int own = connected >= CONNECTED_MAX ? NO_ROOM : idups_pending() ? PUT_OFF : GO, least = NO_ROOM;
    int rc = real.Allreduce(&own, &least, 1, MPI_INT, MPI_MIN, comm);
    spread->is_native = least == NO_ROOM;
    if (least == PUT_OFF) {
        spread->awaited = 0;
        spread->put_off += spread->put_off < PUT_OFF_MAX;
    }
    *go = least == GO;
    return rc;
}

int spread_connect(struct spread *spread, MPI_Comm comm, int *is_told)
{
    const struct layout *layout = &spread->layout;
    if (spread->site != MPI_COMM_NULL || spread->is_native)
        return MPI_SUCCESS;
    /* These two calls are on the program's own communicator. */
    int go, rc = agree(spread, comm, &go);
    if (rc == MPI_SUCCESS && !go)
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
