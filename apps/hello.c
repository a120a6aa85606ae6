/*
 * hello: every rank says who it is and where it runs, in the order of the ranks.
 *
 *   mpirun -n N hello
 *
 * Rank 0 prints one line for each rank, "rank R of N on HOST" (HOST is what
 * MPI_Get_processor_name says on that rank), and then " No Errors". A rank
 * that believes in another number of ranks makes the program fail: status 1.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { TAG_LINE = 1 };

struct line {
    int rank;
    int size;
    char host[MPI_MAX_PROCESSOR_NAME];
};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);

    struct line mine;
    int length = 0;
    memset(&mine, 0, sizeof mine);
    MPI_Comm_rank(MPI_COMM_WORLD, &mine.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mine.size);
    MPI_Get_processor_name(mine.host, &length);

    int errors = 0;
    if (mine.rank != 0) {
        MPI_Send(&mine, sizeof mine, MPI_BYTE, 0, TAG_LINE, MPI_COMM_WORLD);
    } else {
        for (int rank = 0; rank < mine.size; rank++) {
            struct line line = mine;
            if (rank != 0) {
                MPI_Recv(&line, sizeof line, MPI_BYTE, rank, TAG_LINE, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            }
            printf("rank %d of %d on %s\n", line.rank, line.size, line.host);
            if (line.rank != rank || line.size != mine.size) {
                errors++;
            }
        }
        if (errors == 0) {
            printf(" No Errors\n");
        } else {
            printf("Found %d errors\n", errors);
        }
    }

    MPI_Bcast(&errors, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return errors == 0 ? 0 : 1;
}
