#include "known.h"

#include <pthread.h>
#include <stdlib.h>

#include "real.h"
#include "say.h"
#include "state.h"
#include "worlds.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keyval = MPI_KEYVAL_INVALID;
static _Thread_local struct freeing *innermost;

static void spread_free(struct spread *spread)
{
    if (!spread)
        return;
    spread_disconnect(spread);
    layout_free(&spread->layout);
    free(spread->sites);
    free(spread);
}

static void known_free(struct known *known)
{
    if (!known)
        return;
    spread_free(known->spread);
    if (known->meeting)
        wire_release(known->meeting);
    free(known->colors);
    free(known->depths);
    free(known->node_of);
    free(known);
}

/* MPI-4.1, 7.7.2: called by MPI_Comm_free, in which all ranks of the communicator are. */
static int forget(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    known_free(value);
    return MPI_SUCCESS;
}

int known_start(void)
{
    /* MPI_COMM_NULL_COPY_FN: a duplicate finds out for itself. */
    return real.Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL) == MPI_SUCCESS ? 0 : -1;
}

void known_end(void)
{
    if (keyval != MPI_KEYVAL_INVALID)
        real.Comm_free_keyval(&keyval);
}

void known_forget(MPI_Comm comm)
{
    void *value;
    int found = 0;
    if (keyval != MPI_KEYVAL_INVALID && real.Comm_get_attr(comm, keyval, &value, &found) == MPI_SUCCESS && found)
        real.Comm_delete_attr(comm, keyval);
}

void known_freeing(struct freeing *freeing, MPI_Comm comm)
{
    *freeing = (struct freeing){.comm = comm, .outer = innermost};
    innermost = freeing;
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF)
        return;
    known_forget(comm);
}

void known_freed(struct freeing *freeing)
{
    innermost = freeing->outer;
}

static int is_being_freed(MPI_Comm comm)
{
    for (const struct freeing *freeing = innermost; freeing; freeing = freeing->outer)
        if (freeing->comm == comm)
            return 1;
    return 0;
}

/* The layout of the ranks' nodes, or NULL if all are at one site. */
static int make_spread(struct known *known, const struct topology *topology)
{
    size_t levels = (size_t)topology->levels;
    struct spread *spread = calloc(1, sizeof *spread);
    int *place = malloc((size_t)known->size * levels * sizeof *place);
    if (!spread || !place) {
        free(spread);
        free(place);
        return -1;
    }
    for (int i = 0; i < known->size; i++)
        for (size_t level = 0; level < levels; level++)
            place[(size_t)i * levels + level] = topology->node[known->node_of[i]].place[level];
    int rc = layout_make(&spread->layout, place, topology->levels, known->size, known->rank);
    free(place);
    if (rc != 0 || spread->layout.sites == 1) {
        if (rc == 0)
            layout_free(&spread->layout);
        free(spread);
        return rc;
    }
    spread->topology = topology;
    spread->node_of = known->node_of;
    spread->is_oversubscribed = known->is_oversubscribed;
    known->spread = spread;
    return 0;
}

/* Fills in what is known. Returns -1 without memory or after an error of MPI. */
static int find_out(struct known *known, MPI_Comm comm, const struct topology *topology)
{
    int inter;
    if (real.Comm_test_inter(comm, &inter) != MPI_SUCCESS || real.Comm_size(comm, &known->size) != MPI_SUCCESS ||
        real.Comm_rank(comm, &known->rank) != MPI_SUCCESS)
        return -1;
    if (inter)
        return 0;
    known->node_of = malloc((size_t)known->size * 2 * sizeof *known->node_of);
    if (!known->node_of)
        return -1;
    known->group_of = known->node_of + known->size;
    if (worlds_nodes(comm, known->size, known->node_of, known->group_of, &known->is_oversubscribed) == 0)
        return make_spread(known, topology);
    free(known->node_of);
    known->node_of = known->group_of = NULL;
    return 0;
}

static struct known *make(MPI_Comm comm, const struct topology *topology)
{
    struct known *known = calloc(1, sizeof *known);
    if (known && find_out(known, comm, topology) == 0 && real.Comm_set_attr(comm, keyval, known) == MPI_SUCCESS)
        return known;
    known_free(known);
    static int said;
    if (!said++)
        say("no memory for a communicator's places");
    return NULL;
}

struct known *known_of(MPI_Comm comm)
{
    const struct topology *topology = state_topology();
    void *value = NULL;
    int found = 0;
    if (!topology || comm == MPI_COMM_NULL || keyval == MPI_KEYVAL_INVALID)
        return NULL;
    if (real.Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    if (found)
        return value;
    if (is_being_freed(comm))
        return NULL;
    /* Two threads may ask for one communicator at a time. */
    pthread_mutex_lock(&lock);
    if (real.Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS)
        value = NULL;
    else if (!found)
        value = make(comm, topology);
    pthread_mutex_unlock(&lock);
    return value;
}

void known_hold(MPI_Comm comm, struct wire *meeting)
{
    if (!meeting)
        return;
    struct known *known = known_of(comm);
    if (known)
        known->meeting = meeting;
    else
        wire_release(meeting);
}
