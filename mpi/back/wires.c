#include "wires.h"

#include <pthread.h>
#include <stdlib.h>

#include "real.h"

/* Never held while the MPI is called: it may call back from within locks of its own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wire *wires;  /* the oldest first */

static void free_communicator(struct wire *wire)
{
    if (wire->comm != MPI_COMM_NULL)
        real.Comm_free(&wire->comm);
    if (wire->processes != MPI_GROUP_NULL)
        real.Group_free(&wire->processes);
}

struct wire *wires_add(MPI_Comm comm, unsigned long long id)
{
    struct wire *wire = malloc(sizeof *wire);
    if (!wire) {
        real.Comm_free(&comm);
        return NULL;
    }
    *wire = (struct wire){.comm = comm, .processes = MPI_GROUP_NULL, .id = id, .holders = 1};
    if (real.Comm_set_errhandler(comm, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        real.Comm_group(comm, &wire->processes) != MPI_SUCCESS) {
        free_communicator(wire);
        free(wire);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    struct wire **last = &wires;
    while (*last)
        last = &(*last)->next;
    *last = wire;
    pthread_mutex_unlock(&lock);
    return wire;
}

/* The next younger one, or the oldest. It is held. */
static struct wire *hold_next(const struct wire *wire)
{
    pthread_mutex_lock(&lock);
    struct wire *next = wire ? wire->next : wires;
    if (next)
        next->holders++;
    pthread_mutex_unlock(&lock);
    return next;
}

/* Fills in the ranks on the wire of those of a communicator. Returns whether it has them all. */
static int has_all(const struct wire *wire, MPI_Comm comm, int size, int *ranks)
{
    MPI_Group of;
    int *own = malloc((size_t)size * sizeof *own), count = 0;
    if (!own || real.Comm_group(comm, &of) != MPI_SUCCESS) {
        free(own);
        return 0;
    }
    for (int r = 0; r < size; r++)
        own[r] = r;
    if (real.Group_translate_ranks(of, size, own, wire->processes, ranks) == MPI_SUCCESS)
        while (count < size && ranks[count] != MPI_UNDEFINED)
            count++;
    real.Group_free(&of);
    free(own);
    return count == size;
}

struct wire *wires_find(MPI_Comm comm, int size, int *ranks)
{
    struct wire *wire = hold_next(NULL);
    while (wire && !has_all(wire, comm, size, ranks)) {
        struct wire *next = hold_next(wire);
        wire_release(wire);
        wire = next;
    }
    return wire;
}

void wire_release(struct wire *wire)
{
    pthread_mutex_lock(&lock);
    int is_last = --wire->holders == 0;
    for (struct wire **at = &wires; is_last && *at; at = &(*at)->next) {
        if (*at == wire) {
            *at = wire->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!is_last)
        return;
    free_communicator(wire);
    free(wire);
}

void wires_end(void)
{
    pthread_mutex_lock(&lock);
    struct wire *wire = wires;
    wires = NULL;
    pthread_mutex_unlock(&lock);
    while (wire) {
        struct wire *next = wire->next;
        wire->next = NULL;
        free_communicator(wire);
        wire = next;
    }
}
