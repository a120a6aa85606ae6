#include "spread.h"

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

int spread_connect(struct spread *spread, MPI_Comm comm)
{
    const struct layout *layout = &spread->layout;
    if (spread->site != MPI_COMM_NULL)
        return MPI_SUCCESS;
    int rc = MPI_SUCCESS;
    if (spread->wire == MPI_COMM_NULL)
        rc = split(comm, 0, layout->rank, &spread->wire);
    if (rc == MPI_SUCCESS)
        rc = split(spread->wire, layout->site_of[layout->rank], layout->rank, &spread->site);
    return rc;
}
