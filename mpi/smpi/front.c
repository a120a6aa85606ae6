/* What stands in for the front where the MPI is SimGrid's: the program's calls go to the
 * collectives, since all is linked into one object. */
#include <mpi.h>
#include <stdio.h>

#include "../back/attributes.h"
#include "../back/collectives/collectives.h"
#include "../back/counters.h"
#include "../back/start.h"
#include "../back/state.h"
#include "simulated.h"

static int depths_keyval, colors_keyval;
static const struct front simulated = {
    .version = FRONT_VERSION,
    /* ISTHMUS_TOPOLOGY names the file. */
    .topology = "",
    .depths_keyval = &depths_keyval,
    .colors_keyval = &colors_keyval,
};
const struct front *front = &simulated;

int MPI_Init(int *argc, char ***argv)
{
    real_fill();
    depths_keyval = colors_keyval = MPI_KEYVAL_INVALID;
    int rc = PMPI_Init(argc, argv);
    if (rc == MPI_SUCCESS)
        state_start();
    return rc;
}

int MPI_Finalize(void)
{
    state_end();
    return PMPI_Finalize();
}

/* As the real front has it. */
long isthmus_mpi_counter(int with_native)
{
    return counters_calls(with_native);
}

int isthmus_mpi_last(char *name, int length)
{
    return snprintf(name, (size_t)length, "%s", count_last()) < length ? MPI_SUCCESS : MPI_ERR_ARG;
}

int MPI_Barrier(MPI_Comm comm)
{
    return coll_Barrier(comm);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    return coll_Bcast(buffer, count, type, root, comm);
}

int MPI_Reduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    return coll_Reduce(send, receive, count, type, op, root, comm);
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return coll_Allreduce(send, receive, count, type, op, comm);
}

int MPI_Gather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
               MPI_Datatype receive_type, int root, MPI_Comm comm)
{
    return coll_Gather(send, send_count, send_type, receive, receive_count, receive_type, root, comm);
}

int MPI_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                MPI_Datatype receive_type, int root, MPI_Comm comm)
{
    return coll_Scatter(send, send_count, send_type, receive, receive_count, receive_type, root, comm);
}

int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                  MPI_Datatype receive_type, MPI_Comm comm)
{
    return coll_Allgather(send, send_count, send_type, receive, receive_count, receive_type, comm);
}

int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                 MPI_Datatype receive_type, MPI_Comm comm)
{
    return coll_Alltoall(send, send_count, send_type, receive, receive_count, receive_type, comm);
}

int MPI_Gatherv(const void *send, int send_count, MPI_Datatype send_type, void *receive, const int *receive_counts,
                const int *displacements, MPI_Datatype receive_type, int root, MPI_Comm comm)
{
    return coll_Gatherv(send, send_count, send_type, receive, receive_counts, displacements, receive_type, root, comm);
}

int MPI_Alltoallv(const void *send, const int *send_counts, const int *send_displacements, MPI_Datatype send_type,
                  void *receive, const int *receive_counts, const int *receive_displacements,
                  MPI_Datatype receive_type, MPI_Comm comm)
{
    return coll_Alltoallv(send, send_counts, send_displacements, send_type, receive, receive_counts,
                          receive_displacements, receive_type, comm);
}
