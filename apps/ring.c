/*
 * ring: a token goes round all ranks, its content is checked at every stop.
 *
 *   mpirun -n N ring [BYTES [ROUNDS]]     (1024 bytes, 10 rounds)
 *
 * Each byte of the token depends on the number of hops the token has made and
 * on its place, so a lost, repeated, shifted or changed message is seen by the
 * rank that receives it. Rank 0 prints a summary and " No Errors". A wrong
 * byte aborts the whole program; a wrong argument ends it with status 2.
 */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TAG_TOKEN = 1 };

/* The byte at `index` of a token that has made `hop` hops. */
static unsigned char expected(uint32_t hop, uint32_t index)
{
    uint32_t x = hop * 0x9E3779B1u ^ index * 0x85EBCA6Bu;
    x ^= x >> 15;
    return (unsigned char)(x * 0x2C1B3C6Du >> 24);
}

static void fill(unsigned char *token, int bytes, uint32_t hop)
{
    for (int i = 0; i < bytes; i++) {
        token[i] = expected(hop, (uint32_t)i);
    }
}

static void check(const unsigned char *token, int bytes, uint32_t hop, int rank)
{
    for (int i = 0; i < bytes; i++) {
        if (token[i] != expected(hop, (uint32_t)i)) {
            fprintf(stderr, "ring: rank %d, hop %u, byte %d: got 0x%02x, expected 0x%02x\n", rank,
                    (unsigned)hop, i, token[i], expected(hop, (uint32_t)i));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

/* Parses a whole number from `low` to INT_MAX, -1 if it isn't one. */
static int parse(const char *text, int low)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > INT_MAX) {
        return -1;
    }
    return (int)value;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);

    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    int bytes = argc > 1 ? parse(argv[1], 0) : 1024;
    int rounds = argc > 2 ? parse(argv[2], 1) : 10;
    if (bytes < 0 || rounds < 0 || argc > 3) {
        if (rank == 0) {
            fprintf(stderr, "usage: ring [BYTES [ROUNDS]]\n");
        }
        MPI_Finalize();
        return 2;
    }

    unsigned char *token = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (token == NULL) {
        fprintf(stderr, "ring: rank %d: no memory for %d bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }

    int next = (rank + 1) % size;
    int previous = (rank + size - 1) % size;
    for (int round = 0; round < rounds; round++) {
        uint32_t first_hop = (uint32_t)round * (uint32_t)size;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Status status;
        int received = 0;

        if (rank == 0) {
            fill(token, bytes, first_hop);
            MPI_Isend(token, bytes, MPI_BYTE, next, TAG_TOKEN, MPI_COMM_WORLD, &request);
        }
        if (size == 1) {
            /* A rank may not receive into the buffer that it is sending from. */
            unsigned char *own = malloc(bytes > 0 ? (size_t)bytes : 1);
            if (own == NULL) {
                fprintf(stderr, "ring: no memory for %d bytes\n", bytes);
                MPI_Abort(MPI_COMM_WORLD, 1);
                return 1;
            }
            MPI_Recv(own, bytes, MPI_BYTE, 0, TAG_TOKEN, MPI_COMM_WORLD, &status);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            check(own, bytes, first_hop, rank);
            free(own);
            continue;
        }
        if (rank == 0) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Recv(token, bytes, MPI_BYTE, previous, TAG_TOKEN, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &received);
        if (received != bytes) {
            fprintf(stderr, "ring: rank %d: got %d bytes, expected %d\n", rank, received, bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        uint32_t hop = first_hop + (rank == 0 ? (uint32_t)size - 1 : (uint32_t)rank - 1);
        check(token, bytes, hop, rank);
        if (rank != 0) {
            fill(token, bytes, hop + 1);
            MPI_Send(token, bytes, MPI_BYTE, next, TAG_TOKEN, MPI_COMM_WORLD);
        }
    }

    if (rank == 0) {
        printf("ring: %d ranks, %d rounds of %d bytes\n", size, rounds, bytes);
        printf(" No Errors\n");
    }
    free(token);
    MPI_Finalize();
    return 0;
}
