/* Whether the algorithms of real MPIs give what MPI says, under SMPI:
 *
 *   smpirun -np N ... own      with ISTHMUS_TOPOLOGY and ISTHMUS_SIMULATED=openmpi|mpich
 *
 * Exit status: 1 if a result is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../smpi/own.h"

static int rank, size, wrong;

/* What a rank has at a place. The sums of all ranks are no more than an int holds. */
static int number_of(int seed, int of_rank, int place)
{
    return (int)((seed * 7919L + of_rank * 31L + place) % 1000003);
}

static int sum_of(int seed, int place)
{
    int sum = 0;
    for (int i = 0; i < size; i++)
        sum += number_of(seed, i, place);
    return sum;
}

static void compare(const char *what, int count, int root, int place, int got, int want)
{
    if (got == want)
        return;
    if (!wrong)
        fprintf(stderr, "own: rank %d of %d: %s of %d from %d has %d at %d, not %d\n", rank, size, what, count, root, got,
                place, want);
    wrong = 1;
}

static int *numbers(int count)
{
    int *made = calloc((size_t)count, sizeof(int));
    if (!made)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return made;
}

/* Most numbers that all ranks together have in a buffer: they are one process. */
#define MOST_NUMBERS (1L << 22)

static void try_whole(int count, int root)
{
    int *send = numbers(count), *got = numbers(count);
    for (int i = 0; i < count; i++)
        got[i] = send[i] = number_of(count, rank, i);
    own_Barrier(MPI_COMM_WORLD);

    own_Bcast(got, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        compare("bcast", count, root, i, got[i], number_of(count, root, i));

    own_Reduce(send, got, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    for (int i = 0; i < (rank == root ? count : 0); i++)
        compare("reduce", count, root, i, got[i], sum_of(count, i));

    own_Allreduce(send, got, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        compare("allreduce", count, root, i, got[i], sum_of(count, i));
    free(send), free(got);
}

/* With a block for each rank. */
static void try_blocks(int count, int root)
{
    int all = count * size;
    int *send = numbers(all), *got = numbers(all);
    for (int i = 0; i < all; i++)
        send[i] = number_of(count, rank, i);
    own_Gather(send, count, MPI_INT, got, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < (rank == root ? all : 0); i++)
        compare("gather", count, root, i, got[i], number_of(count, i / count, i % count));

    own_Scatter(send, count, MPI_INT, got, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        compare("scatter", count, root, i, got[i], number_of(count, root, rank * count + i));

    memset(got, 0, (size_t)all * sizeof(int));
    own_Allgather(send, count, MPI_INT, got, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < all; i++)
        compare("allgather", count, root, i, got[i], number_of(count, i / count, i % count));
    free(send), free(got);
}

static void try(int count, int root)
{
    if ((long)count * size <= MOST_NUMBERS)
        try_whole(count, root);
    if ((long)count * size * size <= MOST_NUMBERS)
        try_blocks(count, root);
}

int main(int argc, char **argv)
{
    static const int counts[] = {1, 2, 13, 100, 600, 3000, 20000, 140000};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        try(counts[i], 0);
        try(counts[i], size - 1);
    }
    int all_wrong = 0;
    PMPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("own: %s\n", all_wrong ? "wrong" : "right");
    MPI_Finalize();
    return wrong || all_wrong;
}
