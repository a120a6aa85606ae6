/*
 * colltime: how long one collective takes, by the library that isthmus preloads and by the
 * MPI itself, in turns.
 *
 *   mpirun -n N colltime (OPERATION[,...] BYTES[,...])... REPETITIONS [clock[=SECONDS[,LATE]]]
 *
 * OPERATION is barrier, bcast, reduce, allreduce, gather, scatter, allgather or alltoall.
 * BYTES is what one rank contributes, in whole ints; the root is rank 0. A time is that of
 * the slowest rank, from its own start after a barrier on. For each operation and size rank 0
 * prints a line of JSON with the medians and the least times: {"operation": ..., "bytes": ...,
 * "ours_us": ..., "native_us": ..., "ours_least_us": ..., "native_least_us": ..., "late_us": ...,
 * "interposed": true, "algorithm": "leaders"}. The algorithm is the library's word for what carried out the timed calls:
 * "native" if the library chose the MPI's own. It is an error if that isn't the same in all of them.
 * Without the library both times are the MPI's own, and the algorithm is "".
 *
 * `clock` is for ranks that are all on one machine, as in the lab: all begin at the same
 * moment of its clock, from which times count: so one that wakes up late makes no time too short.
 * A barrier lets ranks go at different moments. The moment is SECONDS (0.05) after rank 0 has chosen
 * it, which must be longer than the longest way, as rank 0 tells each rank itself. A rank that hears of
 * it too late, or gets no processor then, delays the call, which isn't the collective's doing. So a call
 * is made again, up to 20 times, if a rank began more than LATE seconds (0.002) too late. "late_us" is by
 * how much one did for a call that counts. Many ranks to a core need PAUSE as well (pause.h).
 *
 * The same source is compiled for SimGrid's MPI (make -C ../mpi smpi), in which time is
 * simulated. There all ranks begin at the same moment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CALLS(X) X(Barrier) X(Bcast) X(Reduce) X(Allreduce) X(Gather) X(Scatter) X(Allgather) X(Alltoall)

struct calls {
#define X(name) __typeof__(&MPI_##name) name;
    CALLS(X)
#undef X
};

static const struct calls program = {
#define X(name) .name = MPI_##name,
    CALLS(X)
#undef X
};
static struct calls own;
static int *send, *receive, count, by_clock;
/* Seconds, longer than it takes to tell all when to begin. */
static double head_start = 0.05;
/* What carried out the last call: the library's isthmus_mpi_last(), or NULL. */
static int (*last)(char *name, int length);
enum { NAME = 32 };
/* By how many seconds ranks may wake up too late for a call that counts, and how often it is made at most. */
static double most_late = 0.002;
enum { TRIES = 20 };
/* What a rank says of a call: microseconds that it took, and by how many seconds it began too late. */
enum { FIGURES = 2 };

#ifdef SMPI_SHARED_MALLOC
/* All is linked into one object there, and the library counts the calls that reach it. The MPI's own are
 * those of a real MPI (mpi/smpi/own.h). */
long isthmus_mpi_counter(int with_native);
int isthmus_mpi_last(char *name, int length);
#define X(name) extern __typeof__(MPI_##name) own_##name __attribute__((weak));
CALLS(X)
#undef X

#define WARM_UPS 1
/* Longer than any collective, in simulated seconds. */
#define SLOT 1000
/* One piece of memory for all ranks: thousands of them are one process. */
#define new_buffer(bytes) SMPI_SHARED_MALLOC(bytes)
#define free_buffer(buffer) SMPI_SHARED_FREE(buffer)

static void find_own(void)
{
#define X(name) own.name = own_##name ? own_##name : PMPI_##name;
    CALLS(X)
#undef X
}

static int is_interposed(void)
{
    return isthmus_mpi_counter(1) > 0;
}

static void find_last(void)
{
    last = isthmus_mpi_last;
}

static double seconds(void)
{
    return MPI_Wtime();
}

static double start_together(double *late)
{
    static int slot;
    *late = 0;
    double left = ++slot * (double)SLOT - MPI_Wtime();
    if (left < 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    struct timespec wait = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&wait, NULL);
    return seconds();
}

/* Not by a reduction: some of those that are simulated first send millions of messages to find
 * out who shares a node. */
static void collect(double *mine, double *all)
{
    own.Gather(mine, FIGURES, MPI_DOUBLE, all, FIGURES, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

/* All have the same clock, and wake up at once. */
static void tell_all(void *what, int bytes)
{
    (void)what;
    (void)bytes;
}
#else
#include "pause.h"

/* The first call of each makes its connections and communicators. */
#define WARM_UPS 2
#define new_buffer(bytes) calloc(1, bytes)
#define free_buffer(buffer) free(buffer)

/* The functions of the MPI itself, past whatever was preloaded. */
static void find_own(void)
{
    static const char *const names[] = {"libmpi.so.40", "libmpi_abi.so.0", "libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"};
    void *mpi = NULL;
    for (size_t i = 0; !mpi && i < sizeof names / sizeof *names; i++)
        mpi = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
#define X(name) \
    if (mpi) \
        *(void **)&own.name = dlsym(mpi, "PMPI_" #name); \
    if (!own.name) \
        own.name = MPI_##name;
    CALLS(X)
#undef X
}

static int is_interposed(void)
{
    return own.Barrier != program.Barrier;
}

static void find_last(void)
{
    *(void **)&last = dlsym(RTLD_DEFAULT, "isthmus_mpi_last");
}

/* Rank 0 tells each other rank, which takes one crossing. A tree's messages would cross several times. */
static void tell_all(void *what, int bytes)
{
    const int tag = 1;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0)
        MPI_Recv(what, bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int to = 1; rank == 0 && to < size; to++)
        MPI_Send(what, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

/* Rank 0 gets the figures of each rank, in one crossing as well. */
static void collect(double *mine, double *all)
{
    const int tag = 2;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0)
        MPI_Send(mine, FIGURES, MPI_DOUBLE, 0, tag, MPI_COMM_WORLD);
    else
        memcpy(all, mine, FIGURES * sizeof *mine);
    for (int from = 1; rank == 0 && from < size; from++)
        MPI_Recv(&all[FIGURES * from], FIGURES, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static double seconds_of(const struct timespec *time)
{
    return (double)time->tv_sec + 1e-9 * (double)time->tv_nsec;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return seconds_of(&now);
}

/* Returns the moment from which the call's time counts. `late`: by how many seconds this rank woke up too late. */
static double start_together(double *late)
{
    struct timespec when;
    *late = 0;
    if (!by_clock) {
        own.Barrier(MPI_COMM_WORLD);
        return seconds();
    }
    clock_gettime(CLOCK_MONOTONIC, &when);
    when.tv_sec += (time_t)head_start;
    when.tv_nsec += (long)((head_start - (double)(time_t)head_start) * 1e9);
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    tell_all(&when, sizeof when);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
    *late = seconds() - seconds_of(&when);
    return seconds_of(&when);
}
#endif

static void call(const char *operation, const struct calls *calls)
{
    if (!strcmp(operation, "barrier"))
        calls->Barrier(MPI_COMM_WORLD);
    else if (!strcmp(operation, "bcast"))
        calls->Bcast(send, count, MPI_INT, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "reduce"))
        calls->Reduce(send, receive, count, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "allreduce"))
        calls->Allreduce(send, receive, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(operation, "gather"))
        calls->Gather(send, count, MPI_INT, receive, count, MPI_INT, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "scatter"))
        calls->Scatter(send, count, MPI_INT, receive, count, MPI_INT, 0, MPI_COMM_WORLD);
    else if (!strcmp(operation, "allgather"))
        calls->Allgather(send, count, MPI_INT, receive, count, MPI_INT, MPI_COMM_WORLD);
    else if (!strcmp(operation, "alltoall"))
        calls->Alltoall(send, count, MPI_INT, receive, count, MPI_INT, MPI_COMM_WORLD);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Of the slowest rank, in microseconds; rank 0 gets it. `late`: by how many seconds a rank woke up too late at most; all
 * get it. */
static double timed(const char *operation, const struct calls *calls, double *all, int size, double *late)
{
    double mine[FIGURES];
    double start = start_together(&mine[1]);
    call(operation, calls);
    mine[0] = (seconds() - start) * 1e6;
    collect(mine, all);
    double slowest = 0;
    *late = 0;
    for (const double *one = all; one < all + FIGURES * (size_t)size; one += FIGURES) {
        slowest = one[0] > slowest ? one[0] : slowest;
        *late = one[1] > *late ? one[1] : *late;
    }
    if (by_clock)
        tell_all(late, sizeof *late);
    return slowest;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double *times, int number)
{
    qsort(times, (size_t)number, sizeof *times, compare);
    return number % 2 ? times[number / 2] : (times[number / 2 - 1] + times[number / 2]) / 2;
}

/* The algorithm of the last call through the library, into a name of NAME bytes. "" without the library, or where it
 * doesn't know the sites. */
static void read_last(char *name)
{
    name[0] = '\0';
    if (last && last(name, NAME) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What the library says of a timed call must be the same for all of them, and a decision of its own. */
static void check_algorithm(const char *operation, long bytes, const char *before, const char *now)
{
    if (strcmp(now, "first") != 0 && (!before || !strcmp(now, before)))
        return;
    fprintf(stderr, "colltime: %s of %ld bytes was carried out by %s and by %s: not one algorithm of the library\n", operation,
            bytes, before ? before : "nothing", now);
    MPI_Abort(MPI_COMM_WORLD, 4);
}

/* Whether a rank has something for, or from, each other one. */
static int has_all(const char *operation, const char *all, const char *rooted, int rank)
{
    return !strcmp(operation, "alltoall") || !strcmp(operation, all) || (!strcmp(operation, rooted) && rank == 0);
}

static void measure(const char *operation, long bytes, int repetitions)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    count = (int)((bytes + (long)sizeof(int) - 1) / (long)sizeof(int));
    size_t room = ((size_t)count + 1) * sizeof(int);
    send = new_buffer(room * (has_all(operation, "", "scatter", rank) ? (size_t)size : 1));
    receive = new_buffer(room * (has_all(operation, "allgather", "gather", rank) ? (size_t)size : 1));
    double *times[2] = {calloc((size_t)repetitions, sizeof(double)), calloc((size_t)repetitions, sizeof(double))};
    double *all = calloc((size_t)size, FIGURES * sizeof *all);
    if (!send || !receive || !times[0] || !times[1] || !all)
        MPI_Abort(MPI_COMM_WORLD, 1);
    char algorithm[NAME] = "", now[NAME];
    int is_known = 0;
    double latest = 0;
    /* By turns. A single call of each comes after calls of its own kind: their connections have windows then. */
    int turns = 2 * (WARM_UPS + repetitions);
    for (int turn = 0; turn < turns; turn++) {
        int repetition = (repetitions > 1 ? turn / 2 : turn % (turns / 2)) - WARM_UPS;
        int native = repetitions > 1 ? (repetition + turn) & 1 : turn >= turns / 2;
        double took, late;
        int tries = 0;
        do
            took = timed(operation, native ? &own : &program, all, size, &late);
        while (repetition >= 0 && late > most_late && ++tries < TRIES);
        if (repetition < 0)
            continue;
        latest = late > latest ? late : latest;
        times[native][repetition] = took;
        if (native)
            continue;
        read_last(now);
        check_algorithm(operation, bytes, is_known ? algorithm : NULL, now);
        memcpy(algorithm, now, sizeof algorithm);
        is_known = 1;
    }
    /* The least comes first once they are sorted. */
    double medians[2] = {median(times[0], repetitions), median(times[1], repetitions)};
    if (rank == 0)
        printf("{\"operation\": \"%s\", \"bytes\": %ld, \"ours_us\": %.1f, \"native_us\": %.1f, "
               "\"ours_least_us\": %.1f, \"native_least_us\": %.1f, \"late_us\": %.1f, \"interposed\": %s, \"algorithm\": \"%s\"}\n",
               operation, bytes, medians[0], medians[1], times[0][0], times[1][0], latest * 1e6,
               is_interposed() ? "true" : "false", algorithm);
    fflush(stdout);
    free_buffer(send);
    free_buffer(receive);
    free(all);
    free(times[0]);
    free(times[1]);
}

/* The library leaves the first calls of a communicator to the MPI, whatever they are. The first message to each rank
 * makes a connection. */
static void settle(void)
{
    enum { MOST = 100 };
    struct timespec when = {0};
    char name[NAME] = "";
    int calls = 0;
    tell_all(&when, sizeof when);
    do {
        if (++calls > MOST) {
            fprintf(stderr, "colltime: the library takes none of the first %d calls\n", MOST);
            MPI_Abort(MPI_COMM_WORLD, 4);
        }
        program.Barrier(MPI_COMM_WORLD);
        read_last(name);
    } while (!strcmp(name, "first"));
}

/* Every size of every operation; only one of a barrier. */
static void measure_all(char *operations, const char *sizes, int repetitions)
{
    char *operation;
    while ((operation = strsep(&operations, ","))) {
        const char *size = sizes;
        do {
            measure(operation, atol(size), repetitions);
            size = strchr(size, ',');
        } while (size++ && strcmp(operation, "barrier") != 0);
    }
}

/* Whether the argument has ranks begin by the clock; takes the times from it. */
static int is_clock(const char *argument)
{
    if (!strcmp(argument, "clock"))
        return 1;
    if (strncmp(argument, "clock=", 6) != 0)
        return 0;
    char *end;
    head_start = strtod(argument + 6, &end);
    if (*end == ',')
        most_late = strtod(end + 1, &end);
    return head_start > 0 && head_start < 3600 && most_late > 0 && *end == '\0';
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    by_clock = argc > 1 && is_clock(argv[argc - 1]);
    int last = argc - 1 - by_clock, repetitions = last > 0 ? atoi(argv[last]) : 0;
    if (repetitions < 1 || last < 3 || last % 2 == 0) {
        fprintf(stderr, "usage: colltime (OPERATION[,...] BYTES[,...])... REPETITIONS [clock[=SECONDS[,LATE]]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    find_own();
    find_last();
    settle();
    for (int i = 1; i < last; i += 2)
        measure_all(argv[i], argv[i + 1], repetitions);
    MPI_Finalize();
    return 0;
}
