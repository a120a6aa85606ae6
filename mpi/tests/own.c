/* Whether the algorithms of real MPIs give what SMPI's own give, under SMPI:
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

static void fill(int *numbers, int count, int seed)
{
    for (int i = 0; i < count; i++)
        numbers[i] = seed * 7919 + rank * 31 + i;
}

static void compare(const char *what, int count, int root, const int *got, const int *want, int numbers)
{
    if (memcmp(got, want, (size_t)numbers * sizeof(int)) == 0)
        return;
    wrong = 1;
    fprintf(stderr, "own: rank %d of %d: %s of %d from %d is wrong\n", rank, size, what, count, root);
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

static void try(int count, int root)
{
    if ((long)count * size * size > MOST_NUMBERS)
        return;
    int all = count * size, at_root = rank == root;
    int *send = numbers(all), *got = numbers(all), *want = numbers(all);
    fill(send, all, count);
    own_Barrier(MPI_COMM_WORLD);

    memcpy(got, send, (size_t)count * sizeof(int));
    memcpy(want, send, (size_t)count * sizeof(int));
    own_Bcast(got, count, MPI_INT, root, MPI_COMM_WORLD);
    PMPI_Bcast(want, count, MPI_INT, root, MPI_COMM_WORLD);
    compare("bcast", count, root, got, want, count);

    own_Reduce(send, got, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    PMPI_Reduce(send, want, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    compare("reduce", count, root, got, want, at_root ? count : 0);

    own_Allreduce(send, got, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    PMPI_Allreduce(send, want, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    compare("allreduce", count, root, got, want, count);

    own_Gather(send, count, MPI_INT, got, count, MPI_INT, root, MPI_COMM_WORLD);
    PMPI_Gather(send, count, MPI_INT, want, count, MPI_INT, root, MPI_COMM_WORLD);
    compare("gather", count, root, got, want, at_root ? all : 0);

    own_Scatter(send, count, MPI_INT, got, count, MPI_INT, root, MPI_COMM_WORLD);
    PMPI_Scatter(send, count, MPI_INT, want, count, MPI_INT, root, MPI_COMM_WORLD);
    compare("scatter", count, root, got, want, count);

    own_Allgather(send, count, MPI_INT, got, count, MPI_INT, MPI_COMM_WORLD);
    PMPI_Allgather(send, count, MPI_INT, want, count, MPI_INT, MPI_COMM_WORLD);
    compare("allgather", count, root, got, want, all);
    free(send), free(got), free(want);
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
    PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        printf("own: %s\n", all_wrong ? "wrong" : "right");
    MPI_Finalize();
    return all_wrong;
}
