/* An attribute of MPI_COMM_SELF tells the other rank to end, in MPI_Finalize of the first (MPI-4.1, 11.2.4). Two ranks,
 * with topologies/turns. */
#include "check.h"

static int tell(MPI_Comm self, int key, void *value, void *state)
{
    int stop = 1;
    (void)self, (void)key, (void)value, (void)state;
    MPI_Send(&stop, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int rank, key, stop = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == 1);
    if (rank == 0) {
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tell, &key, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    } else {
        MPI_Recv(&stop, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(stop == 1);
    }
    MPI_Finalize();
    return 0;
}
