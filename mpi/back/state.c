#include "state.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "alone.h"
#include "attributes.h"
#include "collectives/asked.h"
#include "counters.h"
#include "known.h"
#include "processors.h"
#include "real.h"
#include "say.h"
#include "start.h"
#include "worlds.h"

enum phase { BEFORE, RUNNING, ENDED };

static _Atomic int phase = BEFORE;
static _Atomic int spans;
static struct topology *topology;
static struct tags tags;

const struct topology *state_topology(void)
{
    return atomic_load_explicit(&phase, memory_order_acquire) == RUNNING ? topology : NULL;
}

int state_spans(void)
{
    return atomic_load_explicit(&spans, memory_order_acquire);
}

const struct tags *state_tags(void)
{
    return &tags;
}

/* The largest tag that the MPI has. */
static int largest_tag(void)
{
    void *value;
    int found = 0;
    if (real.Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found) != MPI_SUCCESS || !found)
        return TAG_MOST_LEAST;
    return *(const int *)value;
}

/* The file that says where the job runs, or NULL. */
static const char *topology_file(void)
{
    const char *file = getenv("ISTHMUS_TOPOLOGY");
    if (file && *file)
        return file;
    return access(front->topology, F_OK) == 0 ? front->topology : NULL;
}

/* This process's node, or NO_PLACE. */
static int own_node(int rank)
{
    if (topology->world_size == 0)
        return topology->self;
    return rank < topology->world_size ? topology->world[rank] : NO_PLACE;
}

/* The group of this process in the job's profile, which knows nothing of spawned processes, or -1. */
static int profile_group(int rank)
{
    MPI_Comm parent;
    if (real.Comm_get_parent(&parent) != MPI_SUCCESS || parent != MPI_COMM_NULL)
        return -1;
    return topology_group(topology, rank);
}

/* What all ranks must have in common: the topology, what the user asked for, and tags. */
static unsigned long long common_hash(void)
{
    asked_start();
    unsigned long long hash = topology_hash(topology);
    for (size_t i = 0; i < 3; i++)
        hash = (hash ^ (unsigned)(int[]){asked(), tags.numbers, tags.sequence}[i]) * 1099511628211ull;
    return hash ? hash : 1;
}

/* Reads the topology. Returns what to tell the others; without a place, `why` says why. */
static struct record read_topology(int rank, char *why, size_t why_len)
{
    const char *file = topology_file();
    char wrong[256] = "it doesn't say at which node this process is";
    if (!file) {
        snprintf(why, why_len, "%s isn't there", front->topology);
        return (struct record){.node = NO_TOPOLOGY, .group = -1, .site = -1};
    }
    topology = topology_read(file, wrong, sizeof wrong);
    int node = topology ? own_node(rank) : NO_PLACE;
    if (node >= 0) {
        snprintf(why, why_len, "other ranks have read another %s, or have another ISTHMUS_COLL or release of isthmus", file);
        struct processors processors = processors_of_thread(topology->node[node].name);
        return (struct record){
            .node = node,
            .group = (short)profile_group(rank),
            .site = (short)topology->node[node].place[topology->levels - 1],
            .set = processors.set,
            .processors = (unsigned short)(processors.count < USHRT_MAX ? processors.count : USHRT_MAX),
            .hash = common_hash(),
        };
    }
    snprintf(why, why_len, "%s: %s", file, wrong);
    topology_free(topology);
    topology = NULL;
    return (struct record){.node = NO_PLACE, .group = -1, .site = -1};
}

void state_start(void)
{
    char why[PATH_MAX + 256];
    int rank;
    if (atomic_load(&phase) != BEFORE || real.Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS)
        return;
    attributes_start();
    tags = tags_make(largest_tag());
    struct record own = read_topology(rank, why, sizeof why);
    if (worlds_start(&own) == rank)
        say("collectives are the MPI's own: %s", why);
    if (topology)
        counters_start(topology, own.site);
    if (topology && known_start() != 0)
        say("collectives are the MPI's own: no attribute key could be made");
    else
        atomic_store(&spans, topology && topology->sites > 1);
    if (state_spans())
        alone_start();
    atomic_store_explicit(&phase, RUNNING, memory_order_release);
}

void state_end(void)
{
    if (atomic_load(&phase) != RUNNING)
        return;
    counters_report();
    known_forget(MPI_COMM_WORLD);
    known_forget(MPI_COMM_SELF);
    atomic_store(&spans, 0);
    atomic_store(&phase, ENDED);
    known_end();
    alone_end();
    attributes_end();
    worlds_end();
}
