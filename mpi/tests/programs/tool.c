/* A PMPI tool: a library that counts the program's calls. */
#include <mpi.h>
#include <stdio.h>

static int bcasts, allreduces, finalizes;

int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
    bcasts++;
    return PMPI_Bcast(buffer, count, datatype, root, comm);
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    allreduces++;
    return PMPI_Allreduce(send, recv, count, datatype, op, comm);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    finalizes++;
    if (rank == 0)
        printf("tool: bcast %d allreduce %d finalize %d\n", bcasts, allreduces, finalizes);
    return PMPI_Finalize();
}
