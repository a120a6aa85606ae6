/*
 * alltoall: every rank talks to every rank, and every byte is checked.
 *
 *   mpirun -n N alltoall [MAX_BYTES [ROUNDS]]      (1048576, 1)
 *
 * For block sizes from 1 byte to MAX_BYTES, ROUNDS times: MPI_Alltoall, MPI_Alltoallv with
 * blocks of different lengths (some empty) and gaps between them, and
 * MPI_Sendrecv between each pair of ranks in both directions. Every byte is a
 * function of (source, destination, index, step), every gap must stay as it
 * was. Rank 0 prints a summary and " No Errors", or the number of wrong bytes,
 * then the exit status is 1 on every rank. A wrong argument: status 2.
 *
 * Each rank needs about 2 * N * MAX_BYTES of memory.
 */
#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_PAIR = 1, MAX_BLOCK = 1 << 24, MAX_ROUNDS = 1000000 };

static const unsigned char GUARD = 0xA5;
static const int GAP = 3; /* untouched bytes after each block of Alltoallv */

static const int SIZES[] = {1, 2, 7, 64, 1000, 4096, 16384, 65536, 65537, 262144, 1048576};

static int rank, size;
static long long checked, errors;

static unsigned char expected(int source, int destination, int index, int step)
{
    uint32_t x = (uint32_t)source * 0x9E3779B1u ^ (uint32_t)destination * 0x85EBCA6Bu ^
                 (uint32_t)index * 0xC2B2AE35u ^ (uint32_t)step * 0x27D4EB2Fu;
    x ^= x >> 15;
    return (unsigned char)(x * 0x2C1B3C6Du >> 24);
}

static void fill(unsigned char *block, int bytes, int destination, int step)
{
    for (int i = 0; i < bytes; i++) {
        block[i] = expected(rank, destination, i, step);
    }
}

/* Only the first wrong byte of a rank is described, all are counted. */
static void wrong(const char *what, int source, int bytes, int index, int got, int want)
{
    if (errors++ == 0) {
        fprintf(stderr,
                "alltoall: %s of %d bytes from rank %d to rank %d, byte %d: "
                "got 0x%02x, expected 0x%02x\n",
                what, bytes, source, rank, index, (unsigned)got, (unsigned)want);
    }
}

static void check(const unsigned char *block, int bytes, int source, int step, const char *what)
{
    for (int i = 0; i < bytes; i++) {
        unsigned char want = expected(source, rank, i, step);
        if (block[i] != want) {
            wrong(what, source, bytes, i, block[i], want);
        }
    }
    checked += bytes;
}

static void check_guard(const unsigned char *gap, int bytes, int source, const char *what)
{
    for (int i = 0; i < bytes; i++) {
        if (gap[i] != GUARD) {
            wrong(what, source, bytes, i, gap[i], GUARD);
        }
    }
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fprintf(stderr, "alltoall: rank %d: no memory for %zu bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static void equal_blocks(unsigned char *out, unsigned char *in, int bytes, int step)
{
    for (int peer = 0; peer < size; peer++) {
        fill(out + (size_t)peer * (size_t)bytes, bytes, peer, step);
    }
    memset(in, GUARD, (size_t)size * (size_t)bytes);
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < size; peer++) {
        check(in + (size_t)peer * (size_t)bytes, bytes, peer, step, "Alltoall");
    }
}

/* What `source` sends to `destination`: nothing, a quarter, a half, all of `bytes`. */
static int uneven(int bytes, int source, int destination)
{
    static const int quarters[] = {4, 0, 1, 2};
    return (int)((long long)bytes * quarters[(3 * source + destination) % 4] / 4);
}

static void uneven_blocks(unsigned char *out, unsigned char *in, int bytes, int step)
{
    int *counts = allocate(4 * (size_t)size * sizeof *counts);
    int *out_counts = counts, *out_starts = counts + size;
    int *in_counts = counts + 2 * size, *in_starts = counts + 3 * size;

    int out_end = 0, in_end = 0;
    for (int peer = 0; peer < size; peer++) {
        out_counts[peer] = uneven(bytes, rank, peer);
        out_starts[peer] = out_end;
        out_end += out_counts[peer] + GAP;
        in_counts[peer] = uneven(bytes, peer, rank);
        in_starts[peer] = in_end;
        in_end += in_counts[peer] + GAP;
        fill(out + out_starts[peer], out_counts[peer], peer, step);
    }
    memset(in, GUARD, (size_t)in_end);
    MPI_Alltoallv(out, out_counts, out_starts, MPI_BYTE, in, in_counts, in_starts, MPI_BYTE,
                  MPI_COMM_WORLD);
    for (int peer = 0; peer < size; peer++) {
        unsigned char *block = in + in_starts[peer];
        check(block, in_counts[peer], peer, step, "Alltoallv");
        check_guard(block + in_counts[peer], GAP, peer, "gap of Alltoallv");
    }
    free(counts);
}

static void pairs(unsigned char *out, unsigned char *in, int bytes, int step)
{
    for (int distance = 0; distance < size; distance++) {
        int to = (rank + distance) % size;
        int from = (rank + size - distance) % size;
        int received = 0;
        MPI_Status status;

        fill(out, bytes, to, step);
        memset(in, GUARD, (size_t)bytes);
        MPI_Sendrecv(out, bytes, MPI_BYTE, to, TAG_PAIR, in, bytes, MPI_BYTE, from, TAG_PAIR,
                     MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &received);
        if (received != bytes) {
            fprintf(stderr, "alltoall: message from rank %d to rank %d: got %d bytes, expected %d\n",
                    from, rank, received, bytes);
            errors++;
        }
        check(in, bytes, from, step, "message");
    }
}

/* A number from 1 to `most`, -1 if it is none. */
static int number(const char *text, long most)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > most) {
        return -1;
    }
    return (int)value;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    int max_bytes = number(argc > 1 ? argv[1] : "1048576", MAX_BLOCK);
    int rounds = number(argc > 2 ? argv[2] : "1", MAX_ROUNDS);
    /* Displacements are ints. */
    if (argc > 3 || max_bytes < 0 || rounds < 0 || ((long long)max_bytes + GAP) * size > INT32_MAX) {
        if (rank == 0) {
            fprintf(stderr,
                    "usage: alltoall [MAX_BYTES [ROUNDS]], 1 to %d, and below 2^31 for all ranks "
                    "together, 1 to %d rounds\n",
                    MAX_BLOCK, MAX_ROUNDS);
        }
        MPI_Finalize();
        return 2;
    }

    size_t room = (size_t)size * ((size_t)max_bytes + (size_t)GAP);
    unsigned char *out = allocate(room);
    unsigned char *in = allocate(room);

    int step = 0, sizes = 0;
    for (int round = 0; round < rounds; round++) {
        sizes = 0;
        for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0] && SIZES[i] <= max_bytes; i++) {
            equal_blocks(out, in, SIZES[i], step++);
            uneven_blocks(out, in, SIZES[i], step++);
            pairs(out, in, SIZES[i], step++);
            sizes++;
        }
    }
    free(in);
    free(out);

    long long mine[2] = {checked, errors}, all[2] = {0, 0};
    MPI_Allreduce(mine, all, 2, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("alltoall: %d ranks, %d block sizes from 1 to %d bytes, %lld bytes checked\n", size,
               sizes, SIZES[sizes - 1], all[0]);
        if (all[1] == 0) {
            printf(" No Errors\n");
        } else {
            printf("Found %lld errors\n", all[1]);
        }
    }
    MPI_Finalize();
    return all[1] == 0 ? 0 : 1;
}
