/*
 * eager: the last rank calls MPI for a message only after rank 0's send of it has returned.
 *
 *   mpirun -n 2 -ppn 1 eager FILE
 *
 * Rank 0 makes FILE then. MPI doesn't promise that this ends (MPI-4.1 section 3.4):
 * it does where a send waits for nothing from its receiver. Rank 0 prints " No Errors";
 * status 1 if FILE doesn't come within 30 s, or a byte is wrong.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST 60000

static int make(const char *file)
{
    FILE *out = fopen(file, "w");
    return out == NULL || fclose(out) != 0;
}

static int await(const char *file)
{
    for (int tries = 0; tries < 3000; tries++) {
        if (access(file, F_OK) == 0)
            return 0;
        usleep(10000);
    }
    fputs("eager: the send didn't return\n", stderr);
    return 1;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {200, 16000, MOST};
    static char buffer[MOST], want[MOST];
    int rank, size, failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(want, 'x', MOST);
    /* Makes the connection. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < 3; i++)
            MPI_Send(want, sizes[i], MPI_BYTE, size - 1, i, MPI_COMM_WORLD);
        failed = argc < 2 || make(argv[1]);
    } else if (rank == size - 1) {
        failed = argc < 2 || await(argv[1]);
        for (int i = 0; i < 3; i++) {
            MPI_Recv(buffer, sizes[i], MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            failed |= memcmp(buffer, want, (size_t)sizes[i]) != 0;
        }
    }
    int any = 0;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && !any)
        puts(" No Errors");
    MPI_Finalize();
    return any;
}
