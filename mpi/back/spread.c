#include "spread.h"

#include <pthread.h>
#include <stdlib.h>

#include "known.h"
#include "real.h"
#include "state.h"
#include "tags.h"

struct spread *spread_of(MPI_Comm comm)
{
    if (!state_spans())
        return NULL;
    const struct known *known = known_of(comm);
    return known ? known->spread : NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct numbers numbers;

static int take_number(void)
{
    pthread_mutex_lock(&lock);
    int number = numbers_take(&numbers, state_tags()->numbers);
    pthread_mutex_unlock(&lock);
    return number;
}

/* Messages to this rank have all arrived when the last call on the communicator ends. After an error
 * they may not have: then the number isn't given again. */
static void give_back(const struct spread *spread, int number)
{
    if (number < 0 || spread->has_failed)
        return;
    pthread_mutex_lock(&lock);
    numbers_give_back(&numbers, number);
    pthread_mutex_unlock(&lock);
}

/* What a rank tells the others of its communicator. */
struct offer {
    unsigned long long wire;    /* the id of the one that it would take; 0 without one */
    long long number;           /* -1: it has none left */
};

static int is_agreed(const struct offer *offers, int size)
{
    for (int r = 0; r < size; r++)
        if (offers[r].wire == 0 || offers[r].wire != offers[0].wire || offers[r].number < 0)
            return 0;
    return 1;
}

int spread_connect(struct spread *spread, MPI_Comm comm, int *is_told)
{
    const struct layout *layout = &spread->layout;
    size_t size = (size_t)layout->size;
    if (spread->peers || spread->is_native)
        return MPI_SUCCESS;
    struct peer *peers = malloc(size * sizeof *peers);
    struct offer *offers = malloc(size * sizeof *offers);
    int *ranks = malloc(size * sizeof *ranks), rc = MPI_ERR_NO_MEM;
    if (!peers || !offers || !ranks)
        goto end;
    struct wire *wire = wires_find(comm, layout->size, ranks);
    int number = wire ? take_number() : -1;
    struct offer own = {.wire = wire ? wire->id : 0, .number = number};
    /* This call is on the program's own communicator. */
    rc = real.Allgather(&own, sizeof own, MPI_BYTE, offers, sizeof own, MPI_BYTE, comm);
    *is_told = rc != MPI_SUCCESS;
    if (rc == MPI_SUCCESS && is_agreed(offers, layout->size)) {
        for (int r = 0; r < layout->size; r++)
            peers[r] = (struct peer){.rank = ranks[r], .number = (int)offers[r].number};
        spread->wire = wire;
        spread->peers = peers;
        peers = NULL;
    } else {
        spread->is_native = rc == MPI_SUCCESS;
        give_back(spread, number);
        if (wire)
            wire_release(wire);
    }
end:
    free(ranks);
    free(offers);
    free(peers);
    return rc;
}

void spread_disconnect(struct spread *spread)
{
    if (!spread->peers)
        return;
    give_back(spread, spread->peers[spread->layout.rank].number);
    wire_release(spread->wire);
    free(spread->peers);
    spread->peers = NULL;
}

int spread_tag(const struct spread *spread, int number, int of_call)
{
    return tag_make(state_tags(), number, spread->sequence, of_call);
}
