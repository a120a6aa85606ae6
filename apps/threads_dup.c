/*
 * threads_dup: collectives while another thread waits in MPI_Comm_dup.
 *
 *   mpirun -n N threads_dup [CALLS [DOUBLES]]
 *
 * A thread of every rank but the first waits in MPI_Comm_dup of one communicator. The main threads
 * call collectives on another one meanwhile: CALLS (10) each of MPI_Allreduce and MPI_Bcast, the latter
 * of so many doubles (100,000). The first rank duplicates only then. That is legal: other communicators,
 * other threads. Rank 0 prints "threads_dup: all right, N ranks". A wrong value makes the program fail:
 * status 1.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Nothing tells when a thread waits inside the MPI. */
#define WAIT_US 200000

static MPI_Comm duplicated, duplicate;

static void *make(void *nothing)
{
    (void)nothing;
    MPI_Comm_dup(duplicated, &duplicate);
    return NULL;
}

static void fail(const char *what)
{
    fprintf(stderr, "threads_dup: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void collectives(MPI_Comm comm, int calls, int length)
{
    int rank, size;
    double *numbers = calloc((size_t)length, sizeof *numbers);
    if (!numbers)
        fail("no memory");
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int call = 0; call < calls; call++) {
        int sum = 0;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        numbers[0] = numbers[length - 1] = rank == 0 ? call : -1;
        MPI_Bcast(numbers, length, MPI_DOUBLE, 0, comm);
        if (sum != size * (size - 1) / 2 || numbers[0] != call || numbers[length - 1] != call)
            fail("a wrong value");
    }
    free(numbers);
}

int main(int argc, char **argv)
{
    int provided, rank, size, calls = argc > 1 ? atoi(argv[1]) : 10, length = argc > 2 ? atoi(argv[2]) : 100000;
    MPI_Comm other;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided != MPI_THREAD_MULTIPLE || length < 1)
        fail("no threads, or no numbers");
    /* Open MPI gives contexts out by that of the communicator of which one is made: this is the lower one. */
    MPI_Comm_dup(MPI_COMM_WORLD, &duplicated);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (rank > 0) {
        if (pthread_create(&thread, NULL, make, NULL) != 0)
            fail("no thread");
        usleep(WAIT_US);
    }
    collectives(other, calls, length);
    if (rank > 0)
        pthread_join(thread, NULL);
    else
        make(NULL);
    MPI_Barrier(duplicate);
    MPI_Comm_free(&duplicate);
    MPI_Comm_free(&other);
    MPI_Comm_free(&duplicated);
    if (rank == 0)
        printf("threads_dup: all right, %d ranks\n", size);
    MPI_Finalize();
    return 0;
}
