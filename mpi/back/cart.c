/* MPI_Cart_create (MPI-4.1, 8.5.1) with reordering. */
#include <stdlib.h>

#include "entries.h"
#include "permuted.h"
#include "real.h"

/* The number of vertices; 0 if the arguments are wrong, which the MPI itself says. */
static int vertices(int ndims, const int *dims, int size)
{
    long product = 1;
    for (int d = 0; d < ndims; d++) {
        if (dims[d] < 1)
            return 0;
        product *= dims[d];
        if (product > size)
            return 0;
    }
    return (int)product;
}

/* An edge from each vertex to the next one in each dimension. The last dimension varies
 * fastest. */
static int grid_edges(struct edges *edges, int ndims, const int *dims, const int *periods, int count)
{
    for (int v = 0; v < count; v++) {
        int stride = 1;
        for (int d = ndims - 1; d >= 0; d--) {
            int at = v / stride % dims[d], last = at == dims[d] - 1;
            int next = last ? v - at * stride : v + stride;
            if ((!last || periods[d]) && next != v && edges_add(edges, v, next, 1) != 0)
                return -1;
            stride *= dims[d];
        }
    }
    return 0;
}

int entry_Cart_create(MPI_Comm comm, int ndims, const int *dims, const int *periods, int reorder, MPI_Comm *made)
{
    const struct spread *spread = reorder && ndims > 0 && dims && periods ? spread_of(comm) : NULL;
    int count = spread ? vertices(ndims, dims, spread->layout.size) : 0, rc = MPI_SUCCESS;
    struct edges edges = {0};
    MPI_Comm permuted = MPI_COMM_NULL;
    if (count > 0 && grid_edges(&edges, ndims, dims, periods, count) == 0)
        rc = permuted_make(spread, &edges, comm, &permuted);
    edges_free(&edges);
    if (rc != MPI_SUCCESS)
        return rc;
    if (permuted == MPI_COMM_NULL)
        return real.Cart_create(comm, ndims, dims, periods, spread ? 0 : reorder, made);
    rc = real.Cart_create(permuted, ndims, dims, periods, 0, made);
    real.Comm_free(&permuted);
    return rc;
}
