/* Whether a simulated connection carries one message after the other (smpi/grid.cpp), under SMPI:
 *
 *   smpirun -np 3 ... ordered DELAY RATE
 *
 * with ranks at three sites that are so many seconds and bytes per second apart, and 0 the first one.
 *
 * Exit status: 1 if a message doesn't arrive when it should. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Short enough not to wait for its receiver. */
#define BYTES 60000

static int rank, wrong;
static char data[2][BYTES];

static void expect(const char *what, double took, double want)
{
    if (took > want * 0.99 && took < want * 1.01)
        return;
    wrong = 1;
    fprintf(stderr, "ordered: rank %d: %s after %.6f s, not %.6f\n", rank, what, took, want);
}

/* Rank 0 sends two messages at once, to these ranks. */
static void send_two(int first, int second)
{
    MPI_Request requests[2];
    MPI_Isend(data[0], BYTES, MPI_BYTE, first, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(data[1], BYTES, MPI_BYTE, second, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* All ranks have one clock. */
static double wait_until(double moment)
{
    double left = moment - MPI_Wtime();
    struct timespec wait = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&wait, NULL);
    return moment;
}

static double receive(double start)
{
    MPI_Recv(data[0], BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Wtime() - start;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    double delay = strtod(argv[1], NULL), seconds = BYTES / strtod(argv[2], NULL), start = wait_until(1);
    if (rank == 0) {
        send_two(1, 1);
    } else if (rank == 1) {
        double first = receive(start), second = receive(start);
        expect("the first message of a connection", first, delay + seconds);
        expect("the second message of a connection", second, delay + 2 * seconds);
    }
    /* By then everything has arrived. */
    start = wait_until(2);
    if (rank == 0)
        send_two(1, 2);
    else
        expect("a message of one of two connections", receive(start), delay + 2 * seconds);
    MPI_Finalize();
    return wrong;
}
