/*
 * meet: two groups of ranks that only know a port's name connect.
 *
 *   mpirun -n N meet              the two halves of one job, or
 *   mpirun -n N meet open FILE    and, as another job,
 *   mpirun -n M meet join FILE
 *
 * The first group opens a port and accepts, the second connects; two jobs hand
 * the port's name over in FILE. All add up their numbers over the merged
 * communicator. Rank 0 of each job prints " No Errors"; status 1 if a number is
 * wrong or FILE doesn't come within 30 s.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int announce(const char *file, const char *port)
{
    char fresh[4096];
    snprintf(fresh, sizeof fresh, "%s.new", file);
    FILE *out = fopen(fresh, "w");
    if (out == NULL) {
        return 1;
    }
    fputs(port, out);
    return fclose(out) != 0 || rename(fresh, file) != 0;
}

static int await(const char *file, char *port)
{
    for (int tries = 0; tries < 3000; tries++) {
        FILE *in = fopen(file, "r");
        if (in != NULL) {
            int missing = fgets(port, MPI_MAX_PORT_NAME, in) == NULL;
            fclose(in);
            return missing;
        }
        usleep(10000);
    }
    return 1;
}

/* Where the port's name comes from and goes to; 0 if all went well. */
static int hand_over(char *port, int open, const char *file)
{
    int rank = 0, failed = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && open) {
        MPI_Open_port(MPI_INFO_NULL, port);
    }
    if (rank == 0 && file != NULL) {
        failed = open ? announce(file, port) : await(file, port);
    }
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return failed;
}

/* Connects and adds up; 0 if the sum is right. */
static int meet(char *port, int open, MPI_Comm own)
{
    MPI_Comm between, all;
    if (open) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, own, &between);
    } else {
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, own, &between);
    }
    int sum = 0, mine = 0, size = 0;
    MPI_Intercomm_merge(between, !open, &all);
    MPI_Comm_rank(all, &mine);
    MPI_Comm_size(all, &size);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
    return sum != size * (size - 1) / 2;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    char port[MPI_MAX_PORT_NAME];
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(port, 0, sizeof port);
    const char *file = argc == 3 ? argv[2] : NULL;
    int opens = file == NULL || strcmp(argv[1], "open") == 0;
    int wrong = argc == 2 || hand_over(port, opens, file);
    if (wrong) {
        fprintf(stderr, "usage: meet [open|join FILE]; or FILE never came\n");
    } else {
        MPI_Comm own;
        int second = file == NULL && rank >= size / 2;
        MPI_Comm_split(MPI_COMM_WORLD, second, rank, &own);
        wrong = meet(port, opens && !second, own);
        MPI_Comm_free(&own);
    }
    if (rank == 0 && opens && !wrong) {
        MPI_Close_port(port);
    }
    if (rank == 0 && !wrong) {
        printf(" No Errors\n");
    }
    MPI_Finalize();
    return wrong;
}
