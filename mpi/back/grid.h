/* Cartesian grids as graphs (MPI-4.1, 8.5.1). Pure: no MPI. */
#ifndef ISTHMUS_GRID_H
#define ISTHMUS_GRID_H

#include "reorder.h"

/* The number of vertices; 0 if the arguments are wrong or it is more than `size`. */
int grid_vertices(int ndims, const int *dims, int size);

/* Adds an edge of weight 1 from each vertex to the next one in each dimension. The last dimension
 * varies fastest. Returns 0, or -1 without memory. */
int grid_edges(struct edges *edges, int ndims, const int *dims, const int *periods, int count);

#endif
