#include "shape_of.h"

#include <mpi.h>
#include <stdlib.h>

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

static struct places places_of(const struct spread *spread)
{
    return (struct places){
        .size = spread->layout.size,
        .site_of = spread->layout.site_of,
        .sites = spread->layout.sites,
        .site = spread->sites,
        .topology = spread->topology,
    };
}

int shape_of_spread(struct spread *spread)
{
    const struct layout *layout = &spread->layout;
    const struct topology *topology = spread->topology;
    int *site = malloc((size_t)layout->sites * sizeof *site);
    if (site == NULL)
        return -1;
    for (int r = 0; r < layout->size; r++)
        site[layout->site_of[r]] = topology->node[spread->node_of[r]].place[topology->levels - 1];
    free(spread->sites);
    spread->sites = site;
    spread->shape.family = family();
    spread->shape.is_oversubscribed = spread->is_oversubscribed;
    struct places places = places_of(spread);
    spread->has_shape = shape_make(&spread->shape, &places) == 0;
    return spread->has_shape ? 0 : -1;
}

int shape_of_root(struct spread *spread, int root)
{
    struct places places = places_of(spread);
    return shape_root(&spread->shape, &places, root);
}
