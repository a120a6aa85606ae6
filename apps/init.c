/*
 * init: how long after a given moment the first and the last rank left MPI_Init.
 *
 *   mpirun -n N init "$(date +%s.%N)" [wire]
 *
 * The argument is the moment in seconds since 1970, by the clock of the
 * machines. Rank 0 prints one JSON object:
 *
 *   ranks          number of ranks
 *   first_init_s   seconds from that moment to the first return from MPI_Init
 *   last_init_s    seconds from that moment to the last one
 *   wired_s        with "wire": seconds until every rank had exchanged a message
 *                  with every other; else the same as last_init_s
 *
 * The clocks of all nodes must agree as well as the figure has to; the nodes
 * of an emulated grid share one clock. A wrong argument: status 2.
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    double left_init = now_s();

    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    char *end = NULL;
    double start = argc >= 2 ? strtod(argv[1], &end) : 0;
    bool wire = argc == 3 && strcmp(argv[2], "wire") == 0;
    if (argc != (wire ? 3 : 2) || end == argv[1] || *end != '\0' || !(start > 0)) {
        if (rank == 0) {
            fprintf(stderr, "usage: init SECONDS_SINCE_1970 [wire]\n");
        }
        MPI_Finalize();
        return 2;
    }

    int *words = calloc(2 * (size_t)size, sizeof *words);
    if (words == NULL) {
        fprintf(stderr, "init: rank %d: no memory\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    /* Pairs, as an all-to-all of small blocks may go by way of other ranks. */
    for (int distance = 1; wire && distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        MPI_Sendrecv(&words[to], 1, MPI_INT, to, 1, &words[size + from], 1, MPI_INT, from, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    double wired = wire ? now_s() : left_init;
    free(words);

    double first = 0, mine[2] = {left_init - start, wired - start}, last[2] = {0, 0};
    MPI_Reduce(&mine[0], &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(mine, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"ranks\":%d,\"first_init_s\":%.6f,\"last_init_s\":%.6f,\"wired_s\":%.6f}\n", size, first,
               last[0], last[1]);
        /* Some MPIs don't always come out of the end. */
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
