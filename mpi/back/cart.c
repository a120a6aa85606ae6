/* MPI_Cart_create (MPI-4.1, 8.5.1) with reordering. */
#include "entries.h"
#include "grid.h"
#include "permuted.h"
#include "real.h"

int entry_Cart_create(MPI_Comm comm, int ndims, const int *dims, const int *periods, int reorder, MPI_Comm *made)
{
    const struct spread *spread = reorder && ndims > 0 && dims && periods ? spread_of(comm) : NULL;
    int count = spread ? grid_vertices(ndims, dims, spread->layout.size) : 0, rc = MPI_SUCCESS;
    int wanted = spread && permuted_wanted();
    struct edges edges = {0};
    MPI_Comm permuted = MPI_COMM_NULL;
    if (count > 0 && (wanted || spread->layout.rank == 0) && grid_edges(&edges, ndims, dims, periods, count) == 0)
        rc = permuted_make(spread, &edges, comm, &permuted);
    edges_free(&edges);
    if (rc != MPI_SUCCESS)
        return rc;
    if (permuted == MPI_COMM_NULL)
        return real.Cart_create(comm, ndims, dims, periods, wanted ? 0 : reorder, made);
    rc = real.Cart_create(permuted, ndims, dims, periods, 0, made);
    real.Comm_free(&permuted);
    return rc;
}
