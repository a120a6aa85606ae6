/* Calls with large counts that no int holds where they don't matter: elsewhere than at the root, of
 * what is in place and, given "inter", between two groups. At least two ranks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>

#include "check.h"

enum { RANKS_MAX = 16 };
static const MPI_Count HUGE_COUNT = (MPI_Count)INT_MAX + 2;
static int rank, size;

typedef int rooted(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
typedef int all_to_all(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm);
typedef int gather_v(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype,
                     int, MPI_Comm);
typedef int broadcast(void *, MPI_Count, MPI_Datatype, int, MPI_Comm);

static void *find(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    CHECK(found);
    return found;
}

static void expect_ranks(const int *numbers, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(numbers[i] == i);
}

/* `is_root`: this rank is the root. `has_own`: it sends to, or receives from, it, as `ranks` do. */
static void check_rooted(MPI_Comm comm, int root, int is_root, int has_own, int ranks)
{
    rooted *gather = find("MPI_Gather_c"), *scatter = find("MPI_Scatter_c");
    gather_v *gatherv = find("MPI_Gatherv_c");
    int all[RANKS_MAX] = {0}, own = rank;
    MPI_Count own_count = has_own ? 1 : HUGE_COUNT, counts[RANKS_MAX];
    MPI_Aint displs[RANKS_MAX];
    for (int i = 0; i < RANKS_MAX; i++) {
        counts[i] = 1;
        displs[i] = i;
    }
    CHECK(gather(&own, own_count, MPI_INT, all, is_root ? 1 : HUGE_COUNT, MPI_INT, root, comm) == MPI_SUCCESS);
    expect_ranks(all, is_root ? ranks : 0);
    memset(all, 0, sizeof all);
    CHECK(gatherv(&own, own_count, MPI_INT, all, counts, displs, MPI_INT, root, comm) == MPI_SUCCESS);
    expect_ranks(all, is_root ? ranks : 0);
    own = -1;
    CHECK(scatter(all, is_root ? 1 : HUGE_COUNT, MPI_INT, &own, own_count, MPI_INT, root, comm) == MPI_SUCCESS);
    CHECK(own == (has_own ? rank : -1));
}

static void check_in_place(MPI_Comm comm)
{
    rooted *gather = find("MPI_Gather_c");
    all_to_all *allgather = find("MPI_Allgather_c"), *alltoall = find("MPI_Alltoall_c");
    int all[RANKS_MAX] = {0};
    all[rank] = rank;
    CHECK(allgather(MPI_IN_PLACE, HUGE_COUNT, MPI_INT, all, 1, MPI_INT, comm) == MPI_SUCCESS);
    expect_ranks(all, size);
    for (int i = 0; i < size; i++)
        all[i] = rank;
    CHECK(alltoall(MPI_IN_PLACE, HUGE_COUNT, MPI_INT, all, 1, MPI_INT, comm) == MPI_SUCCESS);
    expect_ranks(all, size);
    all[1] = rank;
    if (rank == 1)
        CHECK(gather(MPI_IN_PLACE, HUGE_COUNT, MPI_INT, all, 1, MPI_INT, 1, comm) == MPI_SUCCESS);
    else
        CHECK(gather(&rank, 1, MPI_INT, all, HUGE_COUNT, MPI_INT, 1, comm) == MPI_SUCCESS);
    expect_ranks(all, rank == 1 ? size : 0);
}

/* Rank 0 is one group, the others are the other one. First rank 0 is the root, whose number in its
 * group others have in theirs; then the first of the others is. */
static void check_inter(void)
{
    broadcast *bcast = find("MPI_Bcast_c");
    MPI_Comm part, inter;
    int alone = rank == 0, value = alone ? 7 : 0;
    MPI_Comm_split(MPI_COMM_WORLD, alone, 0, &part);
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, alone, 0, &inter);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    MPI_Comm_rank(inter, &rank);
    check_rooted(inter, alone ? MPI_ROOT : 0, alone, !alone, size - 1);
    int of_others = rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    check_rooted(inter, alone ? 0 : of_others, !alone && rank == 0, alone, 1);
    CHECK(bcast(&value, 1, MPI_INT, alone ? MPI_ROOT : 0, inter) == MPI_SUCCESS && value == 7);
    CHECK(bcast(&value, alone || rank == 0 ? 1 : HUGE_COUNT, MPI_INT, alone ? 0 : of_others, inter) == MPI_SUCCESS);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&part);
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size > 1 && size <= RANKS_MAX);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    check_rooted(comm, 0, rank == 0, 1, size);
    check_in_place(comm);
    MPI_Comm_free(&comm);
    if (argc > 1)
        check_inter();
    MPI_Finalize();
    return 0;
}
