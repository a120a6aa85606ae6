/*
 * plate: heat on a plate, as it is often taught.
 *
 *   mpirun -n N plate [ROWS COLUMNS]
 *
 * A Cartesian grid of ranks, made with `reorder`; but coordinates, and where data are gathered, go by the
 * rank in MPI_COMM_WORLD. That is right as long as no MPI reorders, and many programs do it. Rank 0
 * computes the same alone and prints "plate: N of M ranks renumbered, K values wrong". Status 1 if any is.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 8, STEPS = 40 };

typedef double block[BLOCK + 2][BLOCK + 2];

static double start(int i, int j)
{
    return 0.25 * (i % 7) + 0.125 * (j % 5) + 0.01 * i * j;
}

static double mean(double middle, double up, double down, double left, double right)
{
    return 0.2 * (middle + up + down + left + right);
}

/* The edges of this rank's block from its neighbours. */
static void swap(block u, MPI_Comm grid, MPI_Datatype column)
{
    int up, down, left, right;
    MPI_Cart_shift(grid, 0, 1, &up, &down);
    MPI_Cart_shift(grid, 1, 1, &left, &right);
    MPI_Sendrecv(&u[1][1], BLOCK, MPI_DOUBLE, up, 1, &u[BLOCK + 1][1], BLOCK, MPI_DOUBLE, down, 1, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[BLOCK][1], BLOCK, MPI_DOUBLE, down, 2, &u[0][1], BLOCK, MPI_DOUBLE, up, 2, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[1][1], 1, column, left, 3, &u[1][BLOCK + 1], 1, column, right, 3, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[1][BLOCK], 1, column, right, 4, &u[1][0], 1, column, left, 4, grid, MPI_STATUS_IGNORE);
}

static void compute(block u, const int *at, MPI_Comm grid)
{
    block next;
    MPI_Datatype column;
    MPI_Type_vector(BLOCK, 1, BLOCK + 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++)
            u[i + 1][j + 1] = start(at[0] * BLOCK + i, at[1] * BLOCK + j);
    for (int step = 0; step < STEPS; step++) {
        swap(u, grid, column);
        for (int i = 1; i <= BLOCK; i++)
            for (int j = 1; j <= BLOCK; j++)
                next[i][j] = mean(u[i][j], u[i - 1][j], u[i + 1][j], u[i][j - 1], u[i][j + 1]);
        for (int i = 1; i <= BLOCK; i++)
            for (int j = 1; j <= BLOCK; j++)
                u[i][j] = next[i][j];
    }
    MPI_Type_free(&column);
}

/* How many of the values that were gathered, block by block, aren't those of one rank alone. */
static int count_wrong(const double *gathered, const int *dims)
{
    int rows = dims[0] * BLOCK, columns = dims[1] * BLOCK, wrong = 0;
    double *u = malloc(2 * sizeof *u * (size_t)(rows * columns)), *next = u + rows * columns, *other;
    if (!u)
        MPI_Abort(MPI_COMM_WORLD, 1);
    double *memory = u;
    for (int i = 0; i < rows * columns; i++)
        u[i] = start(i / columns, i % columns);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                next[i * columns + j] =
                    mean(u[i * columns + j], u[(i + rows - 1) % rows * columns + j], u[(i + 1) % rows * columns + j],
                         u[i * columns + (j + columns - 1) % columns], u[i * columns + (j + 1) % columns]);
        other = u, u = next, next = other;
    }
    for (int k = 0; k < rows * columns; k++) {
        int rank = k / (BLOCK * BLOCK), i = k / BLOCK % BLOCK, j = k % BLOCK;
        int row = rank / dims[1] * BLOCK + i, column = rank % dims[1] * BLOCK + j;
        wrong += fabs(gathered[k] - u[row * columns + column]) > 1e-9;
    }
    free(memory);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, size, rank_in_grid, renumbered, any, at[2], dims[2] = {0, 0}, periods[2] = {1, 1}, wrong = 0;
    MPI_Comm grid;
    block u;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2) {
        dims[0] = atoi(argv[1]);
        dims[1] = atoi(argv[2]);
    }
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Cart_coords(grid, rank, 2, at);
    MPI_Comm_rank(grid, &rank_in_grid);
    compute(u, at, grid);
    double flat[BLOCK * BLOCK], *gathered = malloc(sizeof flat * (size_t)size);
    if (!gathered)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int k = 0; k < BLOCK * BLOCK; k++)
        flat[k] = u[k / BLOCK + 1][k % BLOCK + 1];
    MPI_Gather(flat, BLOCK * BLOCK, MPI_DOUBLE, gathered, BLOCK * BLOCK, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    renumbered = rank_in_grid != rank;
    MPI_Reduce(&renumbered, &any, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        wrong = count_wrong(gathered, dims);
        printf("plate: %d of %d ranks renumbered, %d values wrong\n", any, size, wrong);
    }
    free(gathered);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return wrong > 0;
}
