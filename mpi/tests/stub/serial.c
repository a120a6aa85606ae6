/* A program of one process that is linked with a stub of an MPI: its calls come to the stub. */
#include "stub.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    int value = 7, sum = 0;
    int failed = MPI_Init(&argc, &argv);
    failed |= MPI_Bcast(&value, 1, 0, 0, 0);
    failed |= MPI_Allreduce(&value, &sum, 1, 0, 0, 0);
    failed |= MPI_Finalize();
    printf("serial: %d calls, sum %d, failed %d\n", stub_calls, sum, failed);
    return stub_calls != 4 || sum != 7 || failed;
}
