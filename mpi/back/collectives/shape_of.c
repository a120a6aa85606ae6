#include "shape_of.h"

#include <mpi.h>
#include <stdlib.h>

#include "../paths.h"
#ifdef SIMULATED
#include "../../smpi/simulated.h"
#endif

/* Whose algorithms the MPI's own are, as far as the ABI tells. */
static enum family family(void)
{
#if defined SIMULATED
    return simulated_family();
#elif defined OPEN_MPI
    return FAMILY_OPENMPI;
#elif defined MPICH_VERSION
    return FAMILY_MPICH;
#else
    return FAMILY_ANY;
#endif
}

int shape_of_spread(struct spread *spread)
{
    const struct layout *layout = &spread->layout;
    const struct topology *topology = spread->topology;
    int *site = malloc((size_t)layout->sites * sizeof *site);
    if (site == NULL || shape_measure(&spread->shape, layout->site_of, layout->size) != 0) {
        free(site);
        return -1;
    }
    for (int r = 0; r < layout->size; r++)
        site[layout->site_of[r]] = topology->node[spread->node_of[r]].place[topology->levels - 1];
    shape_paths(&spread->shape, topology, site, layout->sites);
    spread->shape.family = family();
    free(site);
    spread->has_shape = 1;
    return 0;
}
