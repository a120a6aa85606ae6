/* Collectives at odd moments: after the program has changed its environment, while this or
 * another communicator is being duplicated, while one is being freed, after a collective that
 * failed. Three ranks, with topologies/turns: the first and the last are at one site. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "check.h"

enum { RANKS = 3, COUNT = 4 };
static int rank;

static void check_sum(MPI_Comm comm)
{
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == RANKS * (RANKS - 1) / 2);
}

/* What is asked for is read in MPI_Init: ranks that change it don't part from the others. */
static void check_environment(void)
{
    setenv("ISTHMUS_COLL", rank == 0 ? "native" : "lanes", 1);
    check_sum(MPI_COMM_WORLD);
}

typedef int duplicate(MPI_Comm comm, MPI_Comm *made, MPI_Request *request);

static int (*with_info)(MPI_Comm, MPI_Info, MPI_Comm *, MPI_Request *);

static int idup_with_info(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
    return with_info(comm, MPI_INFO_NULL, made, request);
}

/* A collective on a communicator of which a duplicate is under way, the first on it or not, and
 * one on the duplicate. */
static void check_duplicate(duplicate *start)
{
    for (int used = 0; used < 2; used++) {
        MPI_Comm comm, again;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (used)
            check_sum(comm);
        CHECK(start(comm, &again, &request) == MPI_SUCCESS);
        check_sum(comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_sum(again);
        check_sum(comm);
        MPI_Comm_free(&comm);
        MPI_Comm_free(&again);
    }
}

static long (*counter)(int);

/* The first collective on a communicator while a duplicate of another one is under way at one
 * rank and hasn't been started at the others: it is the library's, as is that on the duplicate. */
static void check_other(duplicate *start)
{
    MPI_Comm comm, made;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    long before = counter(0);
    if (rank != 0)
        check_sum(comm);
    CHECK(start(MPI_COMM_WORLD, &made, &request) == MPI_SUCCESS);
    if (rank == 0)
        check_sum(comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sum(made);
    CHECK(counter(0) == before + 2);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&made);
}

/* An attribute's function: a collective on a communicator that is being freed is native. */
static int deleted;

static int delete(MPI_Comm comm, int key, void *value, void *state)
{
    (void)key, (void)value, (void)state;
    long before = counter(0);
    check_sum(comm);
    CHECK(counter(0) == before);
    deleted++;
    return MPI_SUCCESS;
}

/* The attribute is older than what the library keeps, or newer, or there's nothing of the library's. */
static void check_freed(int (*release)(MPI_Comm *))
{
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &key, NULL);
    deleted = 0;
    for (int order = 0; order < 3; order++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (order == 0)
            check_sum(comm);
        MPI_Comm_set_attr(comm, key, NULL);
        if (order == 1)
            check_sum(comm);
        release(&comm);
    }
    CHECK(deleted == 3);
    MPI_Comm_free_keyval(&key);
}

/* The last rank gives too much to the root, at whose site it is; what the other site has sent
 * to the root by then isn't taken for what it sends in the next call. */
static void check_error(void)
{
    MPI_Comm comm;
    int mine[2 * COUNT], sum[COUNT], all[2 * COUNT * RANKS];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2 * COUNT; i++)
        mine[i] = -1000;
    int code = MPI_Reduce(mine, sum, rank == 2 ? 2 * COUNT : COUNT, MPI_INT, MPI_SUM, 0, comm);
    CHECK(rank != 0 || code != MPI_SUCCESS);
    code = MPI_Gather(mine, rank == 2 ? 2 * COUNT : COUNT, MPI_INT, all, COUNT, MPI_INT, 0, comm);
    CHECK(rank != 0 || code != MPI_SUCCESS);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            mine[i] = 10 * round + rank;
        CHECK(MPI_Reduce(mine, sum, COUNT, MPI_INT, MPI_SUM, 0, comm) == MPI_SUCCESS);
        CHECK(rank != 0 || (sum[0] == 30 * round + 3 && sum[COUNT - 1] == sum[0]));
        CHECK(MPI_Gather(mine, COUNT, MPI_INT, all, COUNT, MPI_INT, 0, comm) == MPI_SUCCESS);
        for (int r = 0; r < RANKS; r++)
            CHECK(rank != 0 || (all[r * COUNT] == 10 * round + r && all[r * COUNT + COUNT - 1] == all[r * COUNT]));
    }
    MPI_Comm_free(&comm);
}

/* The second rank gives the first one, at another site, too much: its error is the message's own, and
 * goes to the communicator's handler. MPICH 4 gives those of messages to that of MPI_COMM_WORLD. */
static inline void check_code(void)
{
    MPI_Comm pair;
    int numbers[2 * COUNT] = {0}, class;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 2, rank, &pair);
    MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
    if (rank < 2) {
        MPI_Error_class(MPI_Bcast(numbers, rank == 1 ? 2 * COUNT : COUNT, MPI_INT, 1, pair), &class);
        CHECK(class == (rank == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
    }
    MPI_Comm_free(&pair);
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == RANKS);
    /* What fails here waits for ever. */
    alarm(20);
    *(void **)&counter = dlsym(RTLD_DEFAULT, "isthmus_mpi_counter");
    CHECK(counter);
    check_environment();
    check_duplicate(MPI_Comm_idup);
    check_other(MPI_Comm_idup);
    *(void **)&with_info = dlsym(RTLD_DEFAULT, "MPI_Comm_idup_with_info");
    if (with_info) {
        check_duplicate(idup_with_info);
        check_other(idup_with_info);
    }
    check_freed(MPI_Comm_free);
    check_freed(MPI_Comm_disconnect);
    check_error();
#if !defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 50000000
    check_code();
#endif
    MPI_Finalize();
    return 0;
}
