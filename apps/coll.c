/*
 * coll: collectives of every kind, each checked, a few times over.
 *
 *   mpirun -n N coll [ROUNDS [BYTES]]
 *
 * Every rank in turn is the root. Each rank contributes BYTES bytes (64), rounded up to
 * whole integers. Rank 0 prints "coll: all right, N ranks". A wrong value makes the
 * program fail: status 1.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

/* What rank `from` sends to rank `to` in a round, at an index. */
static int value(int round, int from, int to, int index)
{
    return round * 1000003 + from * 10007 + to * 101 + index;
}

static int *integers(size_t count)
{
    int *found = calloc(count ? count : 1, sizeof *found);
    if (!found) {
        fprintf(stderr, "coll: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return found;
}

static int differs(const char *operation, int round, int got, int want)
{
    if (got != want)
        fprintf(stderr, "coll: %s, round %d, rank %d: %d instead of %d\n", operation, round, rank, got, want);
    return got != want;
}

static int one_to_all(int round, int root, int count, int *one, int *all)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        one[i] = rank == root ? value(round, root, 0, i) : -1;
    MPI_Bcast(one, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        wrong |= differs("bcast", round, one[i], value(round, root, 0, i));
    for (int to = 0; rank == root && to < size; to++)
        for (int i = 0; i < count; i++)
            all[to * count + i] = value(round, root, to, i);
    MPI_Scatter(all, count, MPI_INT, one, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        wrong |= differs("scatter", round, one[i], value(round, root, rank, i));
    return wrong;
}

static int all_to_one(int round, int root, int count, int *one, int *all)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        one[i] = value(round, rank, 0, i);
    MPI_Gather(one, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int from = 0; rank == root && from < size; from++)
        for (int i = 0; i < count; i++)
            wrong |= differs("gather", round, all[from * count + i], value(round, from, 0, i));
    MPI_Reduce(one, all, count, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < count; i++)
        wrong |= differs("reduce", round, all[i], value(round, size - 1, 0, i));
    return wrong;
}

static int all_to_all(int round, int count, int *one, int *all)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        one[i] = value(0, rank, 0, i);
    MPI_Allgather(one, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            wrong |= differs("allgather", round, all[from * count + i], value(0, from, 0, i));
    MPI_Allreduce(one, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int from = 0; from < size; from++)
            sum += value(0, from, 0, i);
        wrong |= differs("allreduce", round, all[i], sum);
    }
    int *from_me = integers((size_t)count * (size_t)size);
    for (int to = 0; to < size; to++)
        for (int i = 0; i < count; i++)
            from_me[to * count + i] = value(round, rank, to, i);
    MPI_Alltoall(from_me, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            wrong |= differs("alltoall", round, all[from * count + i], value(round, from, rank, i));
    free(from_me);
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    int bytes = argc > 2 ? atoi(argv[2]) : 64;
    if (rounds < 1 || bytes < 0) {
        fprintf(stderr, "usage: coll [ROUNDS [BYTES]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int count = (int)(((size_t)bytes + sizeof(int) - 1) / sizeof(int));
    int *one = integers((size_t)count), *all = integers((size_t)count * (size_t)size);
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
        for (int root = 0; root < size; root++) {
            wrong |= one_to_all(round, root, count, one, all);
            wrong |= all_to_one(round, root, count, one, all);
        }
        wrong |= all_to_all(round, count, one, all);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    if (rank == 0 && !any)
        printf("coll: all right, %d ranks\n", size);
    free(one);
    free(all);
    MPI_Finalize();
    return any;
}
