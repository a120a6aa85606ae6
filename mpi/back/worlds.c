#include "worlds.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "leaving.h"
#include "processors.h"
#include "real.h"
#include "say.h"

/* A group of processes that have exchanged their records. */
struct world {
    MPI_Group processes;
    int size;
    int *node;          /* [size] or -1: not known, or of another topology */
    int *group;         /* [size] or -1: none */
    int *is_oversubscribed; /* [size] */
    struct world *next;
};

/* The newest first. They stay until MPI_Finalize: for each time that worlds have met anew, a group of
 * the MPI's and two ints for each process. MPI doesn't tell when processes are gone for good.
 * MPI_Comm_disconnect is of one communicator; the program may have others of these processes,
 * which it has made without this library's knowing. Were a world forgotten then, a rank that asks
 * for the places of such a communicator afterwards wouldn't know them. One that has asked before
 * would: one's collective would be native and the other's not, and both would wait for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct world *worlds;
static struct record own_record;
static int started;
static struct wire *home;   /* that of MPI_COMM_WORLD, or NULL */

/* How long ranks are waited for before the user is told. They have all come here from a
 * call of the MPI in which they have met. */
#define PATIENCE_SECONDS 30
#define TEST_INTERVAL_NS 100000

/* A rank without this library never comes: one that is linked statically, or was started
 * without LD_PRELOAD. Two ranks tell, since the first may be the one that is missing. */
static void say_waiting(MPI_Comm comm)
{
    int rank;
    if (real.Comm_rank(comm, &rank) == MPI_SUCCESS && rank < 2)
        say("rank %d has waited %d s for the places of all ranks; if some of them run without this library, such "
            "as programs that are linked statically, start the job with --no-coll", rank, PATIENCE_SECONDS);
}

/* MPI_Allgather of the records, which tells the user if it doesn't end. */
static int gather(const struct record *own, struct record *records, MPI_Comm comm)
{
    const struct timespec interval = {.tv_nsec = TEST_INTERVAL_NS};
    MPI_Request request;
    int done = 0, said = 0;
    double start = real.Wtime();
    int rc = real.Iallgather(own, sizeof *own, MPI_BYTE, records, sizeof *records, MPI_BYTE, comm, &request);
    while (rc == MPI_SUCCESS) {
        rc = real.Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            break;
        nanosleep(&interval, NULL);
        if (!said && real.Wtime() - start > PATIENCE_SECONDS) {
            say_waiting(comm);
            said = 1;
        }
    }
    return rc;
}

/* Unlike that of any other process or moment. */
static unsigned long long new_id(void)
{
    static _Atomic unsigned count;
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long moment = (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
    unsigned long long id = (moment + atomic_fetch_add(&count, 1)) ^ (unsigned long long)getpid() << 42;
    return id ? id : 1;
}

/* Gathers the records of all ranks; NULL without memory or after an error. */
static struct record *exchange(struct record own, MPI_Comm comm, int size)
{
    own.id = new_id();
    struct record *records = malloc((size_t)size * sizeof *records);
    /* The others wait for this rank all the same: the MPI says the error then. */
    if (!records)
        say("no memory for the places of %d ranks", size);
    if (gather(&own, records, comm) == MPI_SUCCESS)
        return records;
    free(records);
    return NULL;
}

static int tells_place(const struct record *record)
{
    return own_record.hash != 0 && record->hash == own_record.hash && record->node >= 0;
}

static void remember(MPI_Comm comm, const struct record *records, int size)
{
    struct world *world = malloc(sizeof *world);
    int *node = malloc((size_t)size * 3 * sizeof *node);
    if (!world || !node || real.Comm_group(comm, &world->processes) != MPI_SUCCESS) {
        say("no memory for the places of %d ranks", size);
        free(world);
        free(node);
        return;
    }
    for (int i = 0; i < size; i++) {
        node[i] = tells_place(&records[i]) ? (int)records[i].node : -1;
        node[size + i] = records[i].group;
        node[2 * size + i] = records[i].is_oversubscribed;
    }
    world->size = size;
    world->node = node;
    world->group = node + size;
    world->is_oversubscribed = node + 2 * size;
    pthread_mutex_lock(&lock);
    world->next = worlds;
    worlds = world;
    pthread_mutex_unlock(&lock);
}

static int first_other(const struct record *records, int size)
{
    int first = -1, topologies = 0;
    for (int i = size - 1; i >= 0; i--) {
        topologies += records[i].node != NO_TOPOLOGY;
        if (records[i].node < 0 || records[i].hash != records[0].hash)
            first = i;
    }
    return topologies > 0 ? first : -1;
}

/* Whether processes that know each other's places are at several sites. All that are in the records
 * decide the same. */
static int span(const struct record *records, int size)
{
    for (int i = 0; i < size; i++) {
        int first = 0;
        while (records[first].hash != records[i].hash)
            first++;
        if (records[i].hash != 0 && records[i].site != records[first].site)
            return 1;
    }
    return 0;
}

/* MPI_Comm_create and not MPI_Comm_dup, which would call the attribute functions of tools. */
static struct wire *wire_of_world(unsigned long long id)
{
    MPI_Group all;
    MPI_Comm made = MPI_COMM_NULL;
    if (real.Comm_group(MPI_COMM_WORLD, &all) != MPI_SUCCESS)
        return NULL;
    int rc = real.Comm_create(MPI_COMM_WORLD, all, &made);
    real.Group_free(&all);
    return rc == MPI_SUCCESS ? wires_add(made, id) : NULL;
}

/* Finds out which processes have too few processors. Only those of one MPI_COMM_WORLD are counted, so that each
 * process is told the same of itself, and tells the same of itself to others that it meets. Returns -1
 * without memory. */
static int count_processors(struct record *records, int size)
{
    int *found = malloc((size_t)size * sizeof *found), rc = -1;
    struct processors *of = malloc((size_t)size * sizeof *of);
    for (int i = 0; i < size && of; i++)
        of[i] = (struct processors){ records[i].set, records[i].processors };
    if (found && of)
        rc = oversubscribed(of, size, found);
    for (int i = 0; i < size && rc == 0; i++)
        records[i].is_oversubscribed = found[i] != 0;
    free(of);
    free(found);
    return rc;
}

int worlds_start(const struct record *own)
{
    int size, rank, other = -1;
    own_record = *own;
    started = 1;
    if (real.Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS || real.Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS)
        return -1;
    struct record *records = exchange(own_record, MPI_COMM_WORLD, size);
    if (records && count_processors(records, size) != 0) {
        say("no memory for the processors of %d ranks", size);
        free(records);
        records = NULL;
    }
    if (records) {
        own_record.is_oversubscribed = records[rank].is_oversubscribed;
        other = first_other(records, size);
        remember(MPI_COMM_WORLD, records, size);
        if (span(records, size)) {
            home = wire_of_world(records[0].id);
            leaving_start();
        }
    }
    free(records);
    return other;
}

/* Whether the records tell what the calling rank doesn't know. Those of one world know each other
 * already, and ranks of other topologies never will: their worlds would only pile up. */
static int is_news(MPI_Comm comm, const struct record *records, int size)
{
    int *node = malloc((size_t)size * 2 * sizeof *node), news = 0, is_oversubscribed;
    if (!node || worlds_nodes(comm, size, node, node + size, &is_oversubscribed) == 0) {
        free(node);
        return 0;
    }
    for (int i = 0; i < size; i++)
        news |= node[i] < 0 && tells_place(&records[i]);
    free(node);
    return news;
}

/* The id of a wire that has all ranks, or 0. */
static unsigned long long wire_id(MPI_Comm comm, int size)
{
    int *ranks = malloc((size_t)size * sizeof *ranks);
    struct wire *wire = ranks ? wires_find(comm, size, ranks) : NULL;
    unsigned long long id = wire ? wire->id : 0;
    if (wire)
        wire_release(wire);
    free(ranks);
    return id;
}

static int has_wire(const struct record *records, int size)
{
    for (int i = 0; i < size; i++)
        if (records[i].wire == 0 || records[i].wire != records[0].wire)
            return 0;
    return 1;
}

struct wire *worlds_meet(MPI_Comm intercomm, int high, MPI_Comm made)
{
    const struct record nothing = {.node = NO_TOPOLOGY, .group = -1, .site = -1};
    struct record own = started ? own_record : nothing;
    struct wire *wire = NULL;
    MPI_Comm comm;
    int size;
    if (made == MPI_COMM_NULL || real.Comm_size(made, &size) != MPI_SUCCESS)
        return NULL;
    own.wire = wire_id(made, size);
    struct record *records = exchange(own, made, size);
    if (records && is_news(made, records, size))
        remember(made, records, size);
    if (records && span(records, size) && !has_wire(records, size) &&
        real.Intercomm_merge(intercomm, high, &comm) == MPI_SUCCESS)
        wire = wires_add(comm, records[0].id);
    free(records);
    return wire;
}

/* Fills in what one world knows. Returns the number of ranks that are still not known.
 * `of` is MPI_GROUP_NULL if it is the world's own. */
static int look_up(const struct world *world, MPI_Group of, int size, const int *ranks, int *there, int *node,
                   int *group, int *is_oversubscribed)
{
    int left = 0;
    if (of == MPI_GROUP_NULL)
        memcpy(there, ranks, (size_t)size * sizeof *there);
    else if (real.Group_translate_ranks(of, size, ranks, world->processes, there) != MPI_SUCCESS)
        return size;
    for (int i = 0; i < size; i++) {
        if (node[i] < 0 && there[i] != MPI_UNDEFINED) {
            node[i] = world->node[there[i]];
            group[i] = world->group[there[i]];
            *is_oversubscribed |= world->is_oversubscribed[there[i]];
        }
        left += node[i] < 0;
    }
    return left;
}

int worlds_nodes(MPI_Comm comm, int size, int *node, int *group, int *is_oversubscribed)
{
    MPI_Group of;
    int *ranks = malloc((size_t)size * 2 * sizeof *ranks), left = size;
    for (int i = 0; i < size; i++)
        node[i] = group[i] = -1;
    *is_oversubscribed = 0;
    if (!ranks || real.Comm_group(comm, &of) != MPI_SUCCESS) {
        free(ranks);
        return -1;
    }
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    pthread_mutex_lock(&lock);
    const struct world *world = worlds;
    pthread_mutex_unlock(&lock);
    /* Worlds are only ever put in front of the list. MPIs may compare each rank with each
     * other one, which isn't needed for the communicator that all have. */
    for (; world && left > 0; world = world->next)
        left = look_up(world, comm == MPI_COMM_WORLD && !world->next ? MPI_GROUP_NULL : of, size, ranks, ranks + size,
                       node, group, is_oversubscribed);
    real.Group_free(&of);
    free(ranks);
    return left > 0 ? -1 : 0;
}

void worlds_end(void)
{
    wires_end();
    if (home)
        wire_release(home);
    home = NULL;
    while (worlds) {
        struct world *world = worlds;
        worlds = world->next;
        real.Group_free(&world->processes);
        free(world->node);
        free(world);
    }
    started = 0;
}
