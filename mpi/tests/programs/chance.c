/* Threads that make, use and free communicators of their own, in an order that follows from a seed:
 * `chance SEED`. All ranks' threads of one number do the same. Four ranks, with topologies/turns. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

enum { RANKS = 4, THREADS = 2, STEPS = 60, COMMS = 6, NUMBERS = 3000, PATIENCE_SECONDS = 60 };

struct worker {
    uint64_t state;             /* of the sequence of chances: the same at all ranks */
    MPI_Comm whole;             /* of all ranks */
    MPI_Comm comm[COMMS];       /* MPI_COMM_NULL: free, or one that this rank isn't in */
    int is_there[COMMS];        /* whether there is one, at whatever ranks */
};
static int rank;

/* Splitmix. */
static uint32_t roll(struct worker *worker, uint32_t below)
{
    uint64_t z = worker->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % below);
}

/* Some of the ranks, at least two, as bits. */
static unsigned some(struct worker *worker)
{
    static const unsigned sets[] = {3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15};
    return sets[roll(worker, sizeof sets / sizeof *sets)];
}

static MPI_Comm of_group(MPI_Comm whole, unsigned set)
{
    int ranks[RANKS], count = 0;
    MPI_Group all, part;
    MPI_Comm made = MPI_COMM_NULL;
    for (int r = 0; r < RANKS; r++)
        if (set & 1u << r)
            ranks[count++] = r;
    MPI_Comm_group(whole, &all);
    MPI_Group_incl(all, count, ranks, &part);
    if (set & 1u << rank)
        MPI_Comm_create_group(whole, part, 3, &made);
    MPI_Group_free(&part);
    MPI_Group_free(&all);
    return made;
}

static void make(struct worker *worker, int slot)
{
    MPI_Request request;
    MPI_Comm *made = &worker->comm[slot];
    unsigned kind = roll(worker, 5), set = some(worker), order = roll(worker, 1000);
    switch (kind) {
    case 0: MPI_Comm_dup(worker->whole, made); break;
    case 1: MPI_Comm_split(worker->whole, (int)(set >> rank & 1), (int)(order >> rank & 3), made); break;
    case 2: *made = of_group(worker->whole, set); break;
    case 3:
        MPI_Comm_idup(worker->whole, made, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    default: MPI_Cart_create(worker->whole, 2, (int[]){2, 2}, (int[]){0, 0}, 0, made); break;
    }
    worker->is_there[slot] = 1;
}

static void use(struct worker *worker, MPI_Comm comm)
{
    unsigned kind = roll(worker, 5), times = 1 + roll(worker, 6), length = 1 + roll(worker, NUMBERS), seed = roll(worker, 1000);
    int size, own, numbers[NUMBERS], sums[NUMBERS], all[RANKS];
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &own);
    for (unsigned i = 0; i < times; i++) {
        int value = (int)(seed + i), root = value % size, count = (int)length, back = -1;
        for (int n = 0; n < count; n++)
            numbers[n] = kind == 1 && own != root ? 0 : value + n;
        switch (kind) {
        case 0:
            MPI_Allreduce(numbers, sums, count, MPI_INT, MPI_SUM, comm);
            CHECK(sums[0] == size * value && sums[count - 1] == size * (value + count - 1));
            break;
        case 1:
            MPI_Bcast(numbers, count, MPI_INT, root, comm);
            CHECK(numbers[0] == value && numbers[count - 1] == value + count - 1);
            break;
        case 2:
            MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, comm);
            CHECK(all[0] == 0 && all[size - 1] == size - 1);
            break;
        case 3:
            MPI_Gather(&own, 1, MPI_INT, all, 1, MPI_INT, root, comm);
            MPI_Scatter(all, 1, MPI_INT, &back, 1, MPI_INT, root, comm);
            CHECK(back == own);
            break;
        default:
            MPI_Reduce(numbers, sums, count, MPI_INT, MPI_MAX, root, comm);
            CHECK(own != root || sums[count - 1] == value + count - 1);
            MPI_Barrier(comm);
            break;
        }
    }
}

static void release(struct worker *worker, int slot)
{
    if (worker->comm[slot] != MPI_COMM_NULL)
        MPI_Comm_free(&worker->comm[slot]);
    worker->comm[slot] = MPI_COMM_NULL;
    worker->is_there[slot] = 0;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int step = 0; step < STEPS; step++) {
        int slot = (int)roll(worker, COMMS), chance = (int)roll(worker, 4);
        if (!worker->is_there[slot])
            make(worker, slot);
        else if (chance == 0)
            release(worker, slot);
        use(worker, worker->comm[slot]);
    }
    for (int slot = 0; slot < COMMS; slot++)
        release(worker, slot);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, size;
    pthread_t thread[THREADS];
    static struct worker worker[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE && size == RANKS && argc == 2);
    alarm(PATIENCE_SECONDS);
    for (int t = 0; t < THREADS; t++) {
        worker[t].state = (uint64_t)atoi(argv[1]) * THREADS + (uint64_t)t;
        MPI_Comm_dup(MPI_COMM_WORLD, &worker[t].whole);
        for (int slot = 0; slot < COMMS; slot++)
            worker[t].comm[slot] = MPI_COMM_NULL;
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&thread[t], NULL, work, &worker[t]) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&worker[t].whole);
    if (rank == 0)
        printf("chance: done\n");
    MPI_Finalize();
    return 0;
}
