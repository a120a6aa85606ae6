/* Collectives at odd moments: after the program has changed its environment, while this or
 * another communicator is being duplicated, after a collective that failed. Three ranks, with
 * topologies/turns: the first and the last are at one site. */
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
 * rank and hasn't been started at the others. After the duplicate was used, all is as before. */
static void check_other(duplicate *start)
{
    MPI_Comm comm, made;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (rank != 0)
        check_sum(comm);
    CHECK(start(MPI_COMM_WORLD, &made, &request) == MPI_SUCCESS);
    if (rank == 0)
        check_sum(comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    long before = counter(0);
    check_sum(made);
    CHECK(counter(0) == before + 1);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&made);
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
    check_error();
    MPI_Finalize();
    return 0;
}
