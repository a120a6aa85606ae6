/*
 * window: one-sided communication.
 *
 *   mpirun -n N window
 *
 * Every rank puts its number into the next one's window between two fences,
 * and then adds 1 to a counter in rank 0's window under a lock. Rank 0 prints
 * " No Errors"; status 1 if a number is wrong.
 */
#include <mpi.h>
#include <stdio.h>

enum { GOT, COUNTER, SLOTS };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    int *slots = NULL;
    MPI_Win window;
    MPI_Win_allocate(SLOTS * sizeof *slots, sizeof *slots, MPI_INFO_NULL, MPI_COMM_WORLD, &slots,
                     &window);
    slots[GOT] = -1;
    slots[COUNTER] = 0;
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, GOT, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    int wrong = slots[GOT] != (rank + size - 1) % size;

    int one = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Accumulate(&one, 1, MPI_INT, 0, COUNTER, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_unlock(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    int counted = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&counted, 1, MPI_INT, 0, COUNTER, 1, MPI_INT, window);
    MPI_Win_unlock(0, window);
    wrong |= counted != size;

    int any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && !any) {
        printf(" No Errors\n");
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return any;
}
