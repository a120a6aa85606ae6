/* Three threads, each with communicators of its own, which come and go. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 3, ROUNDS = 3 };
static MPI_Comm comms[THREADS];

static void *work(void *argument)
{
    MPI_Comm comm = *(MPI_Comm *)argument;
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm again;
        int sum, value = rank == round % size ? round : -1;
        MPI_Comm_dup(comm, &again);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, again);
        MPI_Bcast(&value, 1, MPI_INT, round % size, again);
        CHECK(sum == size * (size - 1) / 2 && value == round);
        MPI_Comm_free(&again);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &comms[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    return 0;
}
