/* MPI_Comm_get_attr (MPI-4.1, 7.7.2) for depths and colours. They are looked up when they
 * are asked for, not set when a communicator is made: so they are there on every one. The
 * keys are the MPI's own, which makes them unlike any other, and not found where this
 * library knows nothing. */
#include "attributes.h"

#include "colors.h"
#include "entries.h"
#include "known.h"
#include "real.h"
#include "start.h"
#include "state.h"

static int depths_key = MPI_KEYVAL_INVALID;
static int colors_key = MPI_KEYVAL_INVALID;

static int make_key(int *key)
{
    return real.Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, key, NULL);
}

void attributes_start(void)
{
    if (make_key(&depths_key) != MPI_SUCCESS || make_key(&colors_key) != MPI_SUCCESS)
        return;
    *front->depths_keyval = depths_key;
    *front->colors_keyval = colors_key;
}

void attributes_end(void)
{
    *front->depths_keyval = *front->colors_keyval = MPI_KEYVAL_INVALID;
    if (depths_key != MPI_KEYVAL_INVALID)
        real.Comm_free_keyval(&depths_key);
    if (colors_key != MPI_KEYVAL_INVALID)
        real.Comm_free_keyval(&colors_key);
}

int entry_Comm_get_attr(MPI_Comm comm, int keyval, void *value, int *flag)
{
    int ours = keyval == depths_key || keyval == colors_key;
    if (!ours || keyval == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL)
        return real.Comm_get_attr(comm, keyval, value, flag);
    const struct topology *topology = state_topology();
    struct known *known = known_of(comm);
    *flag = 0;
    if (!topology || !known || !known->node_of)
        return MPI_SUCCESS;
    if (colors_make(known, topology) != 0)
        return refuse_call(comm, MPI_ERR_NO_MEM);
    if (keyval == depths_key)
        *(int **)value = known->depths;
    else
        *(int ***)value = known->colors;
    *flag = 1;
    return MPI_SUCCESS;
}
