/* The one symbol of a back end: the table of its functions. */
#include "../front/front.h"

#include <stddef.h>

#include "collectives/collectives.h"
#include "entries.h"
#include "fortran.h"
#include "large.h"
#include "own.h"
#include "start.h"

const struct front *front;

static const struct back table = {
    .version = FRONT_VERSION,
    .call = {
        [CALL_Attr_get] = (function)entry_Comm_get_attr,
#define X(name) [CALL_##name] = (function)entry_##name,
        X(Init) X(Init_thread) X(Finalize) X(Comm_free) X(Comm_disconnect) X(Intercomm_merge) X(Comm_get_attr)
        X(Comm_split_type) X(Cart_create) X(Dist_graph_create) X(Dist_graph_create_adjacent)
#undef X
#define X(name, parameters) [CALL_##name] = (function)coll_##name, [CALL_##name##_c] = (function)large_##name,
        LARGE_CALLS(X)
#undef X
        [CALL_Barrier] = (function)coll_Barrier,
    },
    .own = {
#define X(name, arguments) [OWN_##name] = (function)own_##name,
        OWN_CALLS(X)
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
    large_start(given->mpi);
    *front->depths_keyval = *front->colors_keyval = MPI_KEYVAL_INVALID;
    return &table;
}
