/* The one symbol of a back end: the table of its functions. */
#include "../front/front.h"

#include <stddef.h>

#include "collectives/collectives.h"
#include "entries.h"
#include "start.h"

const struct front *front;

static const struct back table = {
    .version = FRONT_VERSION,
    .call = {
#define X(name) [CALL_##name] = (function)entry_##name,
        X(Init) X(Init_thread) X(Finalize) X(Intercomm_merge)
#undef X
#define X(name) [CALL_##name] = (function)coll_##name,
        X(Barrier) X(Bcast) X(Reduce) X(Allreduce) X(Gather) X(Gatherv) X(Scatter) X(Scatterv) X(Allgather)
        X(Allgatherv) X(Reduce_scatter) X(Reduce_scatter_block) X(Alltoall) X(Alltoallv)
#undef X
    },
};

__attribute__((visibility("default"))) back_start isthmus_mpi_back;

const struct back *isthmus_mpi_back(const struct front *given, char *why, unsigned why_len)
{
    if (given->version != FRONT_VERSION)
        return NULL;
    front = given;
    if (real_start(given->mpi, why, why_len) != 0)
        return NULL;
    return &table;
}
