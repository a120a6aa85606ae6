/*
 * spawn: starts more of itself while running, on the job's other nodes too.
 *
 *   mpirun -n N spawn [CHILDREN [FILE]]
 *
 * With FILE, the parents first wait until there is such a file, at most 60 s,
 * and rank 0 says "waiting". All parents together spawn CHILDREN processes (2 if not given), each of which
 * says where it runs, add up all ranks' numbers over the merged communicator,
 * disconnect and end. Rank 0 of the parents prints one line for each child,
 * "child R on HOST", and then " No Errors"; status 1 if a number is wrong.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_HOST = 1 };

/* The sum of all ranks' numbers over parents and children merged. */
static int sum_is_wrong(MPI_Comm between, int high)
{
    MPI_Comm all;
    int rank = 0, size = 0, sum = 0;
    MPI_Intercomm_merge(between, high, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Comm_free(&all);
    return sum != size * (size - 1) / 2;
}

static int child(MPI_Comm parents)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    memset(host, 0, sizeof host);
    MPI_Get_processor_name(host, &length);
    MPI_Send(host, sizeof host, MPI_CHAR, 0, TAG_HOST, parents);
    int wrong = sum_is_wrong(parents, 1);
    MPI_Comm_disconnect(&parents);
    return wrong;
}

/* Returns once there is such a file; 1 if there is none in time. */
static int wait_for(const char *file)
{
    for (int tries = 0; tries < 6000; tries++) {
        if (access(file, F_OK) == 0) {
            return 0;
        }
        usleep(10000);
    }
    return 1;
}

static int parent(const char *self, int children, const char *file)
{
    MPI_Comm between;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (file != NULL) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            printf("waiting\n");
            fflush(stdout);
        }
        if (wait_for(file)) {
            fprintf(stderr, "spawn: no %s within 60 s\n", file);
            return 1;
        }
    }
    MPI_Comm_spawn(self, MPI_ARGV_NULL, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
                   MPI_ERRCODES_IGNORE);
    for (int other = 0; rank == 0 && other < children; other++) {
        char host[MPI_MAX_PROCESSOR_NAME];
        MPI_Recv(host, sizeof host, MPI_CHAR, other, TAG_HOST, between, MPI_STATUS_IGNORE);
        printf("child %d on %s\n", other, host);
    }
    int wrong = sum_is_wrong(between, 0);
    MPI_Comm_disconnect(&between);
    if (rank == 0 && !wrong) {
        printf(" No Errors\n");
    }
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Comm parents;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parents);
    int wrong = parents != MPI_COMM_NULL ? child(parents)
                                         : parent(argv[0], argc > 1 ? atoi(argv[1]) : 2, argc > 2 ? argv[2] : NULL);
    MPI_Finalize();
    return wrong;
}
