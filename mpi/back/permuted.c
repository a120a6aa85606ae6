#include "permuted.h"

#include <stdlib.h>

#include "counters.h"
#include "real.h"
#include "say.h"
#include "state.h"

/* What topologies inherit from the communicator they are made of. */
static int inherit(MPI_Comm from, MPI_Comm to)
{
    MPI_Errhandler handler;
    int rc = real.Comm_get_errhandler(from, &handler);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = real.Comm_set_errhandler(to, handler);
    real.Errhandler_free(&handler);
    return rc;
}

int permuted_wanted(void)
{
    const struct topology *topology = state_topology();
    return topology && topology->reorder;
}

/* As reorder(). One rank counts what the order saves. */
static int find_order(const struct layout *layout, const struct edges *edges, int *rank_of)
{
    for (int v = 0; v < layout->size; v++)
        rank_of[v] = v;
    long long weight = weight_between_sites(edges, layout->site_of, rank_of);
    int better = reorder(edges, layout->site_of, layout->size, rank_of);
    if (better > 0 && layout->rank == 0)
        count_topology(permuted_wanted(), weight, weight_between_sites(edges, layout->site_of, rank_of));
    return better;
}

int permuted_make(const struct spread *spread, const struct edges *edges, MPI_Comm comm, MPI_Comm *made)
{
    const struct layout *layout = &spread->layout;
    int *rank_of = malloc((size_t)layout->size * sizeof *rank_of), vertex = layout->rank;
    *made = MPI_COMM_NULL;
    int better = rank_of ? find_order(layout, edges, rank_of) : -1;
    if (better < 0)
        say("no memory to reorder %d ranks", layout->size);
    if (!permuted_wanted())
        better = 0;
    for (int v = 0; better > 0 && v < layout->size; v++)
        if (rank_of[v] == layout->rank)
            vertex = v;
    free(rank_of);
    if (better <= 0)
        return MPI_SUCCESS;
    int rc = real.Comm_split(comm, 0, vertex, made);
    return rc == MPI_SUCCESS ? inherit(comm, *made) : rc;
}
