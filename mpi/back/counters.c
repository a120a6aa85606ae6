#include "counters.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "real.h"
#include "say.h"
#include "start.h"

struct sent {
    _Atomic unsigned long long messages, bytes;
};

static _Atomic unsigned long long calls[OPERATIONS][ALGORITHMS];
static _Thread_local const char *last = "";
static const struct topology *topology;
static struct sent *sent;   /* [sites] */
static int own_site;
static struct sent least;

/* Topologies that could have been reordered, and those that were. */
static struct topologies {
    _Atomic unsigned long long count, weight, weight_reordered;
} topologies[2];

void counters_start(const struct topology *found, int own)
{
    topology = found;
    own_site = own;
    sent = calloc((size_t)found->sites, sizeof *sent);
    if (!sent)
        say("no memory to count messages to other sites");
}

void count_call(enum operation operation, enum algorithm algorithm, int is_first)
{
    atomic_fetch_add_explicit(&calls[operation][algorithm], 1, memory_order_relaxed);
    last = is_first ? COUNT_FIRST : algorithm_name(algorithm);
}

const char *count_last(void)
{
    return last;
}

void count_message(const struct spread *spread, int to_rank, size_t bytes)
{
    int site = topology->node[spread->node_of[to_rank]].place[topology->levels - 1];
    if (!sent || site == own_site)
        return;
    atomic_fetch_add_explicit(&sent[site].messages, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&sent[site].bytes, bytes, memory_order_relaxed);
}

void count_least(struct least crossing)
{
    atomic_fetch_add_explicit(&least.messages, crossing.messages, memory_order_relaxed);
    atomic_fetch_add_explicit(&least.bytes, crossing.bytes, memory_order_relaxed);
}

void count_topology(int was_reordered, long long weight, long long weight_reordered)
{
    struct topologies *of = &topologies[was_reordered];
    atomic_fetch_add_explicit(&of->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->weight, (unsigned long long)weight, memory_order_relaxed);
    atomic_fetch_add_explicit(&of->weight_reordered, (unsigned long long)weight_reordered, memory_order_relaxed);
}

long counters_calls(int with_native)
{
    unsigned long long sum = 0;
    for (int operation = 0; operation < OPERATIONS; operation++)
        for (int algorithm = with_native ? NATIVE : NATIVE + 1; algorithm < ALGORITHMS; algorithm++)
            sum += calls[operation][algorithm];
    return (long)sum;
}

static void write_report(FILE *stream)
{
    int rank = -1, size = 0;
    real.Comm_rank(MPI_COMM_WORLD, &rank);
    real.Comm_size(MPI_COMM_WORLD, &size);
    fprintf(stream, "isthmus mpi report 1\nrank %d %d\n", rank, size);
    for (int operation = 0; operation < OPERATIONS; operation++)
        for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++)
            if (calls[operation][algorithm])
                fprintf(stream, "call %s %s %llu\n", operation_name(operation), algorithm_name(algorithm),
                        calls[operation][algorithm]);
    for (int site = 0; sent && site < topology->sites; site++)
        if (sent[site].messages)
            fprintf(stream, "sent %s %s %llu %llu\n", topology->site_names[own_site], topology->site_names[site],
                    sent[site].messages, sent[site].bytes);
    if (least.messages)
        fprintf(stream, "least %llu %llu\n", least.messages, least.bytes);
    for (int done = 0; done < 2; done++)
        if (topologies[done].count)
            fprintf(stream, "%s %llu %llu %llu\n", done ? "reordered" : "reorder", topologies[done].count,
                    topologies[done].weight, topologies[done].weight_reordered);
    fprintf(stream, "end\n");
}

static int is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Where the report goes: to what the environment names, else into the job's directory, which
 * the node's agent reads. Returns "" for nowhere. */
static const char *place(char *path, size_t path_len)
{
    const char *asked = getenv("ISTHMUS_MPI_REPORT"), *slash = strrchr(front->topology, '/');
    if (asked)
        return asked;
    if (!slash)
        return "";
    int length = snprintf(path, path_len, "%.*s/mpi", (int)(slash - front->topology), front->topology);
    return length > 0 && (size_t)length < path_len && is_directory(path) ? path : "";
}

void counters_report(void)
{
    char path[PATH_MAX], beside[PATH_MAX];
    const char *where = place(beside, sizeof beside);
    if (!*where)
        return;
    int directory = is_directory(where);
    int length = directory ? snprintf(path, sizeof path, "%s/mpi.%ld", where, (long)getpid())
                           : snprintf(path, sizeof path, "%s", where);
    if (length < 0 || (size_t)length >= sizeof path)
        return;
    /* Never over a file that is there: the directory may be shared. */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (!stream) {
        say("no report of the collectives: %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    write_report(stream);
    if (fclose(stream) != 0)
        say("no report of the collectives: %s: %s", path, strerror(errno));
}
