/* Puts the ranks' parts of the mesh together. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <mpi.h>

#include "mesh.h"

/* A cell that rays went through. */
struct entry {
    int64_t length_mm;
    uint32_t rays, cell;
};

/* The cells that rays went through, in their order. The caller frees them. */
struct entry *entries_of(const struct mesh *mesh);

/* Adds cells to the mesh. */
void entries_add(struct mesh *mesh, const struct entry *entries, size_t count);

/* All ranks exchange their parts of the mesh, so that each has all that went through its own range of
 * the cells; then rank 0 gets these. Collective. */
void exchange_mesh(MPI_Comm comm, struct mesh *mesh);

#endif
