/* Calls every operation that the library takes over `argv[1]` times, as MPI_X or, given
 * "large", as MPI_X_c, which the MPI itself may not have; with right results. "narrow" is
 * the same, without more than that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>

#include "check.h"

enum { RANKS_MAX = 16 };
static int rank, size, large;
static int one[RANKS_MAX], all[RANKS_MAX], counts[RANKS_MAX], displs[RANKS_MAX];
static MPI_Count large_counts[RANKS_MAX];
static MPI_Aint large_displs[RANKS_MAX];

/* MPI_X, or MPI_X_c with counts of another type. */
#define CALL(name, parameters, ...) \
    do { \
        int(*call) parameters; \
        *(void **)&call = dlsym(RTLD_DEFAULT, "MPI_" #name "_c"); \
        CHECK(call && call(__VA_ARGS__) == MPI_SUCCESS); \
    } while (0)

static int is_sequence(const int *numbers)
{
    for (int i = 0; i < size; i++)
        if (numbers[i] != i)
            return 0;
    return 1;
}

/* The result of the last call is a number for each rank, its own rank. */
static void expect_all(int here)
{
    CHECK(!here || is_sequence(all));
    memset(all, 0xff, sizeof all);
}

static void reset(void)
{
    for (int i = 0; i < size; i++)
        one[i] = rank;
}

static void ordinary(MPI_Comm comm)
{
    int root = size - 1, value = rank == root ? 7 : 0, sum = 0, whole = size * (size - 1) / 2;
    reset();
    MPI_Barrier(comm);
    MPI_Bcast(&value, 1, MPI_INT, root, comm);
    CHECK(value == 7);
    MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, root, comm);
    CHECK(rank != root || sum == whole);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == whole);
    MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, root, comm);
    expect_all(rank == root);
    MPI_Gatherv(&rank, 1, MPI_INT, all, counts, displs, MPI_INT, root, comm);
    expect_all(rank == root);
    for (int i = 0; i < size; i++)
        all[i] = i;
    MPI_Scatter(all, 1, MPI_INT, &value, 1, MPI_INT, root, comm);
    CHECK(value == rank);
    MPI_Scatterv(all, counts, displs, MPI_INT, &value, 1, MPI_INT, root, comm);
    CHECK(value == rank);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
    expect_all(1);
    MPI_Allgatherv(&rank, 1, MPI_INT, all, counts, displs, MPI_INT, comm);
    expect_all(1);
    MPI_Reduce_scatter(one, &sum, counts, MPI_INT, MPI_SUM, comm);
    CHECK(sum == whole);
    MPI_Reduce_scatter_block(one, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == whole);
    MPI_Alltoall(one, 1, MPI_INT, all, 1, MPI_INT, comm);
    expect_all(1);
    MPI_Alltoallv(one, counts, displs, MPI_INT, all, counts, displs, MPI_INT, comm);
    expect_all(1);
}

#define T MPI_Datatype
#define N MPI_Count
#define NS const MPI_Count *
#define AS const MPI_Aint *

static void with_large_counts(MPI_Comm comm)
{
    int root = size - 1, value = rank == root ? 7 : 0, sum = 0, whole = size * (size - 1) / 2;
    NS n = large_counts;
    AS d = large_displs;
    reset();
    MPI_Barrier(comm);
    CALL(Bcast, (void *, N, T, int, MPI_Comm), &value, 1, MPI_INT, root, comm);
    CHECK(value == 7);
    CALL(Reduce, (const void *, void *, N, T, MPI_Op, int, MPI_Comm), &rank, &sum, 1, MPI_INT, MPI_SUM, root, comm);
    CHECK(rank != root || sum == whole);
    CALL(Allreduce, (const void *, void *, N, T, MPI_Op, MPI_Comm), &rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == whole);
    CALL(Gather, (const void *, N, T, void *, N, T, int, MPI_Comm), &rank, 1, MPI_INT, all, 1, MPI_INT, root, comm);
    expect_all(rank == root);
    CALL(Gatherv, (const void *, N, T, void *, NS, AS, T, int, MPI_Comm), &rank, 1, MPI_INT, all, n, d, MPI_INT, root, comm);
    expect_all(rank == root);
    for (int i = 0; i < size; i++)
        all[i] = i;
    CALL(Scatter, (const void *, N, T, void *, N, T, int, MPI_Comm), all, 1, MPI_INT, &value, 1, MPI_INT, root, comm);
    CHECK(value == rank);
    CALL(Scatterv, (const void *, NS, AS, T, void *, N, T, int, MPI_Comm), all, n, d, MPI_INT, &value, 1, MPI_INT, root, comm);
    CHECK(value == rank);
    CALL(Allgather, (const void *, N, T, void *, N, T, MPI_Comm), &rank, 1, MPI_INT, all, 1, MPI_INT, comm);
    expect_all(1);
    CALL(Allgatherv, (const void *, N, T, void *, NS, AS, T, MPI_Comm), &rank, 1, MPI_INT, all, n, d, MPI_INT, comm);
    expect_all(1);
    CALL(Reduce_scatter, (const void *, void *, NS, T, MPI_Op, MPI_Comm), one, &sum, n, MPI_INT, MPI_SUM, comm);
    CHECK(sum == whole);
    CALL(Reduce_scatter_block, (const void *, void *, N, T, MPI_Op, MPI_Comm), one, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == whole);
    CALL(Alltoall, (const void *, N, T, void *, N, T, MPI_Comm), one, 1, MPI_INT, all, 1, MPI_INT, comm);
    expect_all(1);
    CALL(Alltoallv, (const void *, NS, AS, T, void *, NS, AS, T, MPI_Comm), one, n, d, MPI_INT, all, n, d, MPI_INT, comm);
    expect_all(1);
}

#if MPI_VERSION < 4
/* Where the MPI counts in ints, more fails through the error handler; it doesn't wrap. */
static void check_too_many(void)
{
    MPI_Comm quiet;
    MPI_Count many[RANKS_MAX];
    int byte = 0, error_class;
    int (*bcast)(void *, N, T, int, MPI_Comm);
    int (*allgatherv)(const void *, N, T, void *, NS, AS, T, MPI_Comm);
    *(void **)&bcast = dlsym(RTLD_DEFAULT, "MPI_Bcast_c");
    *(void **)&allgatherv = dlsym(RTLD_DEFAULT, "MPI_Allgatherv_c");
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    for (int i = 0; i < size; i++)
        many[i] = (MPI_Count)INT_MAX + 1;
    MPI_Error_class(bcast(&byte, many[0], MPI_BYTE, 0, quiet), &error_class);
    CHECK(error_class == MPI_ERR_COUNT);
    MPI_Error_class(allgatherv(&byte, 1, MPI_BYTE, &byte, many, large_displs, MPI_BYTE, quiet), &error_class);
    CHECK(error_class == MPI_ERR_COUNT);
    MPI_Error_class(bcast(&byte, -1, MPI_BYTE, 0, quiet), &error_class);
    CHECK(error_class == MPI_ERR_COUNT);
    MPI_Comm_free(&quiet);
}
#else
/* A count that no int holds, of nothing. */
static void check_too_many(void)
{
    MPI_Datatype nothing;
    int byte = 0;
    MPI_Type_contiguous(0, MPI_BYTE, &nothing);
    MPI_Type_commit(&nothing);
    CALL(Bcast, (void *, N, T, int, MPI_Comm), &byte, (MPI_Count)INT_MAX + 1, nothing, 0, MPI_COMM_WORLD);
    MPI_Type_free(&nothing);
}
#endif

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int times = argc > 1 ? atoi(argv[1]) : 1;
    large = argc > 2 && !strcmp(argv[2], "large");
    int narrow = argc > 2 && !strcmp(argv[2], "narrow");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size <= RANKS_MAX);
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        displs[i] = i;
        large_counts[i] = 1;
        large_displs[i] = i;
    }
    for (int i = 0; i < times; i++)
        (large || narrow ? with_large_counts : ordinary)(MPI_COMM_WORLD);
    if (large)
        check_too_many();
    MPI_Finalize();
    return 0;
}
