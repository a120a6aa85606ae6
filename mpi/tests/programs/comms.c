/* More communicators at a time than the library has numbers for, and many one after the other.
 * Three ranks, with topologies/turns; `comms ROUNDS`: two ranks, so many rounds; `comms ROUNDS
 * merged`: of two that don't know each other's places; `comms ROUNDS bytes`: what one takes, with or
 * without the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <time.h>

#include "check.h"

/* LEAK_BYTES is less than the least that is kept for a communicator. */
enum { ROOM_MAX = 1024, EXTRA = 44, LEAK_BYTES = 60, PARTS = 5 };
static int rank;
static long (*counter)(int);

/* How many communicators a process has numbers for: as in tags.c. */
static int room(void)
{
    int *most, found, bits = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    CHECK(found && *most >= 32767);
    while (bits < 30 && (1LL << (bits + 1)) - 1 <= *most)
        bits++;
    int numbers = (bits - 3) * 3 / 5;
    return numbers < 10 ? 1 << numbers : ROOM_MAX;
}

/* Calls that weren't native. */
static long taken(void)
{
    return counter(0);
}

/* A collective, which is the library's or native. */
static void check(MPI_Comm comm, int ours)
{
    int size, sum = 0;
    long before = taken();
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == size * (size - 1) / 2);
    CHECK(taken() - before == ours);
}

/* Two of the three ranks have no number for it. */
static void check_all(void)
{
    MPI_Comm all;
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    check(all, 0);
    MPI_Comm_free(&all);
}

static void check_many(MPI_Comm pair)
{
    static MPI_Comm comm[ROOM_MAX + EXTRA];
    int most = room(), more = most + EXTRA;
    for (int i = 0; i < more; i++) {
        MPI_Comm_dup(pair, &comm[i]);
        check(comm[i], i < most);
    }
    /* Each stays what it is. */
    check(comm[0], 1);
    check(comm[more - 1], 0);
    for (int i = 0; i < more; i++)
        MPI_Comm_free(&comm[i]);
    for (int i = 0; i < most; i++) {
        MPI_Comm_dup(pair, &comm[i]);
        check(comm[i], 1);
    }
    if (rank == 0)
        MPI_Send(NULL, 0, MPI_INT, 2, 0, MPI_COMM_WORLD);
    check_all();
    for (int i = 0; i < most; i++)
        MPI_Comm_free(&comm[i]);
}

/* The third rank, which sleeps until then: MPICH's would take a processor. */
static void wait_for_others(void)
{
    const struct timespec interval = {.tv_nsec = 10000000};
    for (int there = 0; !there; nanosleep(&interval, NULL))
        MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* So many communicators, one after the other. Returns by how much the heap has grown. */
static long make_and_free(int rounds)
{
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < rounds; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        check(comm, 1);
        MPI_Comm_free(&comm);
    }
    return (long)(mallinfo2().uordblks - before);
}

/* Ranks that don't know each other's places, each in a group of its own, meet so many times. */
static long merge_and_free(int rounds)
{
    MPI_Comm inter;
    MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, !rank, 0, &inter);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < rounds; i++) {
        MPI_Comm comm;
        MPI_Intercomm_merge(inter, rank, &comm);
        check(comm, 0);
        MPI_Comm_free(&comm);
    }
    long grown = (long)(mallinfo2().uordblks - before);
    MPI_Comm_free(&inter);
    return grown;
}

/* Nothing is left of those that are freed: MPICH has room for about 2,000. What leaks grows in
 * each part; an MPI's pool that gets another block (1 MiB of MPICH's, at any time) in one. */
static void check_often(int rounds, long (*make)(int))
{
    long least = LONG_MAX;
    for (int part = 0; part < PARTS; part++) {
        long grown = make(rounds / PARTS);
        least = grown < least ? grown : least;
    }
    printf("%d rounds each: at least %ld bytes more\n", rounds / PARTS, least);
    CHECK(least < LEAK_BYTES * (long)(rounds / PARTS));
}

/* What one communicator takes, a collective on it included. */
static void print_bytes(int count)
{
    MPI_Comm *comm = malloc((size_t)count * sizeof *comm);
    CHECK(comm);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < count; i++) {
        int sum = 0;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm[i]);
    }
    size_t after = mallinfo2().uordblks;
    if (rank == 0)
        printf("bytes of one: %zu\n", (after - before) / (size_t)count);
    for (int i = 0; i < count; i++)
        MPI_Comm_free(&comm[i]);
    free(comm);
}

int main(int argc, char **argv)
{
    MPI_Comm pair;
    /* Ranks that have asked for different algorithms don't trust each other's places. */
    const char *number = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    int merged = argc == 3 && strcmp(argv[2], "merged") == 0;
    if (merged && number && strcmp(number, "0") == 0)
        setenv("ISTHMUS_COLL", "lanes", 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    *(void **)&counter = dlsym(RTLD_DEFAULT, "isthmus_mpi_counter");
    if (argc == 3 && !merged) {
        print_bytes(atoi(argv[1]));
        MPI_Finalize();
        return 0;
    }
    CHECK(counter);
    if (argc > 1) {
        check_often(atoi(argv[1]), merged ? merge_and_free : make_and_free);
    } else {
        MPI_Comm_split(MPI_COMM_WORLD, rank == 2, rank, &pair);
        if (rank < 2) {
            check_many(pair);
        } else {
            wait_for_others();
            check_all();
        }
        MPI_Comm_free(&pair);
    }
    MPI_Finalize();
    return 0;
}
