#include "grid.h"

int grid_vertices(int ndims, const int *dims, int size)
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

int grid_edges(struct edges *edges, int ndims, const int *dims, const int *periods, int count)
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
