/*
 * nas: messages as BT, SP, LU, CG, FT and IS of the NAS Parallel Benchmarks send them.
 *
 *   mpirun -n N nas bt|sp|lu|cg|ft|is [STEPS]      (20)
 *
 * N is a square, Q * Q, of at most 256. The sizes of BT, SP, LU and CG are those of class A
 * (64^3 points of 5 values; 14000 rows). FT has 64^3 complex numbers (class S), IS 2^20 keys
 * (class W). Nothing is computed: the time is that of the messages alone.
 *
 *   bt, sp  Each rank has Q of the Q^3 cells, so that every sweep along x, y or z keeps
 *           all ranks busy. A step exchanges the faces of all cells with 6 neighbours.
 *           Then it sweeps along each axis there and back, one message to the next rank
 *           for each of the Q - 1 borders between cells.
 *   lu      Each rank has a column of points. A step goes through 62 planes in a
 *           wavefront from one corner of the ranks to the other, with a small message
 *           to each of two neighbours for each plane, and back. Then it exchanges faces
 *           with up to 4 neighbours.
 *   cg      A step has 25 products of matrix and vector. Each is summed along the Q ranks
 *           of a row, from rank to rank, and exchanged with the rank at the mirrored
 *           place; then two sums of one number go over all ranks, as the collective of CG's
 *           later versions.
 *   ft      A step transposes all points by MPI_Alltoall and sums two numbers.
 *   is      A step sums 1024 counts, tells the number of keys by MPI_Alltoall, and sends the
 *           keys by MPI_Alltoallv.
 *
 * Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007 (1994), has the algorithms.
 * Rank 0 prints one JSON object: steps, seconds for all of them, and messages and bytes
 * of all ranks. Many ranks to a core need PAUSE (pause.h).
 * Exit status: 1 if a message is wrong, 2 for wrong arguments.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pause.h"

enum { POINTS = 64, VALUES = 5, PLANES = POINTS - 2, MAX_STEPS = 1000000, MAX_RANKS = 256 };
enum { FACES = 6, TAG_FACE = 10, TAG_SWEEP = 20, TAG_PLANE = 30, TAG_ROW = 40, TAG_MIRROR = 41 };
enum { ROWS = 14000, PRODUCTS = 25, BUCKETS = 1024, KEYS = 1 << 20 };

static int rank, side, step;
static long long counts[3]; /* messages sent, bytes sent, wrong messages */
static double *out[FACES], *in[FACES];

/* Coordinates wrap around. */
static int at(int row, int column)
{
    return (row + side) % side * side + (column + side) % side;
}

static double expected(int source, int tag)
{
    return source * 1e6 + tag + step * 1e-6;
}

static void mark(double *buffer, int doubles, int tag)
{
    buffer[0] = buffer[doubles - 1] = expected(rank, tag);
}

static void check(const double *buffer, int doubles, int source, int tag)
{
    if (buffer[0] != expected(source, tag) || buffer[doubles - 1] != expected(source, tag)) {
        fprintf(stderr, "nas: rank %d: message %d of rank %d in step %d is wrong\n", rank, tag, source, step);
        counts[2]++;
    }
}

static void sent(int doubles)
{
    counts[0]++;
    counts[1] += (long long)doubles * (long long)sizeof(double);
}

static void send(int to, int doubles, int tag)
{
    mark(out[0], doubles, tag);
    MPI_Send(out[0], doubles, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
    sent(doubles);
}

static void receive(int from, int doubles, int tag)
{
    MPI_Recv(in[0], doubles, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(in[0], doubles, from, tag);
}

/* Exchanges a message with each of `count` neighbours at once; `peers` come in pairs, of
 * which each has the other's direction. */
static void exchange(const int *peers, int count, int doubles)
{
    MPI_Request requests[2 * FACES];
    MPI_Status statuses[2 * FACES];
    int open = 0;
    for (int face = 0; face < count; face++) {
        if (peers[face] != MPI_PROC_NULL) {
            MPI_Irecv(in[face], doubles, MPI_DOUBLE, peers[face], TAG_FACE + (face ^ 1), MPI_COMM_WORLD,
                      &requests[open++]);
        }
    }
    for (int face = 0; face < count; face++) {
        if (peers[face] != MPI_PROC_NULL) {
            mark(out[face], doubles, TAG_FACE + face);
            MPI_Isend(out[face], doubles, MPI_DOUBLE, peers[face], TAG_FACE + face, MPI_COMM_WORLD,
                      &requests[open++]);
            sent(doubles);
        }
    }
    MPI_Waitall(open, requests, statuses);
    for (int face = 0; face < count; face++) {
        if (peers[face] != MPI_PROC_NULL) {
            check(in[face], doubles, peers[face], TAG_FACE + (face ^ 1));
        }
    }
}

/* All ranks sweep at once, each at another cell: at each border they pass one on. */
static void sweep(int to, int from, int doubles, int tag)
{
    for (int border = 0; border < side - 1; border++) {
        mark(out[0], doubles, tag);
        MPI_Sendrecv(out[0], doubles, MPI_DOUBLE, to, tag, in[0], doubles, MPI_DOUBLE, from, tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sent(doubles);
        check(in[0], doubles, from, tag);
    }
}

/* `there` and `back`: values for each point of a border. */
static void cells(int faces_deep, int there, int back)
{
    int cell = POINTS / side, row = rank / side, column = rank % side;
    const int peers[FACES] = {at(row, column + 1), at(row, column - 1), at(row + 1, column),
                              at(row - 1, column), at(row + 1, column + 1), at(row - 1, column - 1)};
    exchange(peers, FACES, faces_deep * VALUES * cell * cell * side);
    for (int axis = 0; axis < 3; axis++) {
        int next = peers[2 * axis], last = peers[2 * axis + 1];
        sweep(next, last, there * cell * cell, TAG_SWEEP + 2 * axis);
        sweep(last, next, back * cell * cell, TAG_SWEEP + 2 * axis + 1);
    }
}

static void block_tridiagonal(void)
{
    cells(1, 30, VALUES);
}

static void pentadiagonal(void)
{
    cells(2, 22, 10);
}

static void wavefront(int north, int west, int south, int east, int tag)
{
    int doubles = VALUES * POINTS / side;
    const int from[2] = {north, west}, to[2] = {south, east};
    for (int plane = 0; plane < PLANES; plane++) {
        for (int way = 0; way < 2; way++) {
            if (from[way] != MPI_PROC_NULL) {
                receive(from[way], doubles, tag + way);
            }
        }
        for (int way = 0; way < 2; way++) {
            if (to[way] != MPI_PROC_NULL) {
                send(to[way], doubles, tag + way);
            }
        }
    }
}

static void columns(void)
{
    int row = rank / side, column = rank % side;
    int north = row > 0 ? at(row - 1, column) : MPI_PROC_NULL;
    int south = row < side - 1 ? at(row + 1, column) : MPI_PROC_NULL;
    int west = column > 0 ? at(row, column - 1) : MPI_PROC_NULL;
    int east = column < side - 1 ? at(row, column + 1) : MPI_PROC_NULL;
    wavefront(north, west, south, east, TAG_PLANE);
    wavefront(south, east, north, west, TAG_PLANE + 2);
    const int peers[4] = {south, north, east, west};
    exchange(peers, 4, 2 * VALUES * (POINTS / side) * POINTS);
}

/* Sums over all ranks; each gives its number, so that the result is known. */
static void sum_of_ranks(int doubles)
{
    int size = side * side;
    for (int i = 0; i < doubles; i++) {
        out[0][i] = rank + step;
    }
    MPI_Allreduce(out[0], in[0], doubles, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double want = size * (size - 1) / 2.0 + (double)size * step;
    counts[2] += in[0][0] != want || in[0][doubles - 1] != want;
}

static void conjugate_gradients(void)
{
    int row = rank / side, column = rank % side, doubles = ROWS / side, mirror = at(column, row);
    for (int product = 0; product < PRODUCTS; product++) {
        for (int pass = 1; pass < side; pass++) {
            int to = at(row, column + pass), from = at(row, column - pass);
            mark(out[0], doubles, TAG_ROW);
            MPI_Sendrecv(out[0], doubles, MPI_DOUBLE, to, TAG_ROW, in[0], doubles, MPI_DOUBLE, from, TAG_ROW,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sent(doubles);
            check(in[0], doubles, from, TAG_ROW);
        }
        if (mirror != rank) {
            mark(out[0], doubles, TAG_MIRROR);
            MPI_Sendrecv(out[0], doubles, MPI_DOUBLE, mirror, TAG_MIRROR, in[0], doubles, MPI_DOUBLE, mirror,
                         TAG_MIRROR, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sent(doubles);
            check(in[0], doubles, mirror, TAG_MIRROR);
        }
        sum_of_ranks(1);
        sum_of_ranks(1);
    }
}

/* A block for each rank: marked at both ends by who sends it to whom. */
static void mark_blocks(double *blocks, int doubles)
{
    for (int to = 0; to < side * side; to++) {
        blocks[to * doubles] = blocks[(to + 1) * doubles - 1] = expected(rank, to);
    }
}

static void check_blocks(const double *blocks, int doubles)
{
    for (int from = 0; from < side * side; from++) {
        check(blocks + from * doubles, doubles, from, rank);
    }
}

static void transpose(void)
{
    int size = side * side, doubles = 2 * POINTS * POINTS * POINTS / (size * size);
    doubles = doubles > 0 ? doubles : 1;
    mark_blocks(out[0], doubles);
    MPI_Alltoall(out[0], doubles, MPI_DOUBLE, in[0], doubles, MPI_DOUBLE, MPI_COMM_WORLD);
    check_blocks(in[0], doubles);
    sum_of_ranks(2);
}

static void sort_keys(void)
{
    /* Two keys of four bytes to a double. */
    int size = side * side, doubles = KEYS / 2 / (size * size), lengths[3][MAX_RANKS];
    doubles = doubles > 0 ? doubles : 1;
    sum_of_ranks(BUCKETS / 2);
    for (int r = 0; r < size; r++) {
        lengths[0][r] = doubles;
        lengths[2][r] = r * doubles;
    }
    MPI_Alltoall(lengths[0], 1, MPI_INT, lengths[1], 1, MPI_INT, MPI_COMM_WORLD);
    mark_blocks(out[0], doubles);
    MPI_Alltoallv(out[0], lengths[0], lengths[2], MPI_DOUBLE, in[0], lengths[1], lengths[2], MPI_DOUBLE, MPI_COMM_WORLD);
    check_blocks(in[0], doubles);
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "nas: rank %d: no memory for %zu bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static int usage(void)
{
    if (rank == 0) {
        fprintf(stderr, "usage: nas bt|sp|lu|cg|ft|is [STEPS], on 4, 9, 16 ... %d ranks, 1 to %d steps\n", MAX_RANKS,
                MAX_STEPS);
    }
    MPI_Finalize();
    return 2;
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (side * side < size) {
        side++;
    }
    char *end = NULL;
    errno = 0;
    long steps = argc > 2 ? strtol(argv[2], &end, 10) : 20;
    static const struct {
        const char *name;
        void (*step)(void);
    } patterns[] = {{"bt", block_tridiagonal}, {"sp", pentadiagonal},       {"lu", columns},
                    {"cg", conjugate_gradients}, {"ft", transpose}, {"is", sort_keys}};
    void (*pattern)(void) = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof patterns / sizeof *patterns; i++) {
        if (strcmp(argv[1], patterns[i].name) == 0) {
            pattern = patterns[i].step;
        }
    }
    if (argc > 3 || pattern == NULL || errno != 0 || (argc > 2 && (end == argv[2] || *end != '\0')) || steps < 1 ||
        steps > MAX_STEPS || side < 2 || side * side != size || size > MAX_RANKS) {
        return usage();
    }
    /* The largest: a sweep of BT over two cells, the faces of SP, or the points of FT. */
    size_t room = (size_t)(2 * POINTS * POINTS * POINTS / side + BUCKETS) * sizeof(double);
    for (int face = 0; face < FACES; face++) {
        out[face] = allocate(room);
        in[face] = allocate(room);
    }

    /* Connections are made before, as they are in the benchmarks' first step. */
    double begun = 0;
    for (step = 0; step <= steps; step++) {
        if (step == 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            memset(counts, 0, 2 * sizeof counts[0]);
            begun = MPI_Wtime();
        }
        pattern();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - begun;

    long long all[3] = {0, 0, 0};
    MPI_Allreduce(counts, all, 3, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"pattern\":\"%s\",\"ranks\":%d,\"steps\":%ld,\"seconds\":%.6f,\"messages\":%lld,\"bytes\":%lld,"
               "\"wrong\":%lld}\n",
               argv[1], size, steps, seconds, all[0], all[1], all[2]);
    }
    for (int face = 0; face < FACES; face++) {
        free(out[face]);
        free(in[face]);
    }
    MPI_Finalize();
    return all[2] == 0 ? 0 : 1;
}
