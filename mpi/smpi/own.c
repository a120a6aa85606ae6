#include "own.h"

#include <stdlib.h>
#include <string.h>

static const struct algorithms *algorithms(void)
{
    const char *mpi = getenv("ISTHMUS_SIMULATED");
    return mpi && strcmp(mpi, "mpich") == 0 ? &mpich_algorithms : &openmpi_algorithms;
}

/* Other communicators, and blocks of two types, aren't measured: SMPI carries them out. */
static int is_left_to_smpi(MPI_Comm comm, const void *send, MPI_Datatype one, MPI_Datatype other)
{
    return comm != MPI_COMM_WORLD || send == MPI_IN_PLACE || one != other;
}

static int bytes_of(MPI_Datatype type)
{
    int bytes;
    PMPI_Type_size(type, &bytes);
    return bytes;
}

int own_Barrier(MPI_Comm comm)
{
    if (comm != MPI_COMM_WORLD)
        return PMPI_Barrier(comm);
    struct group group = group_of(comm);
    return algorithms()->barrier(&group);
}

int own_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    if (comm != MPI_COMM_WORLD)
        return PMPI_Bcast(buffer, count, type, root, comm);
    struct group group = group_of(comm);
    int item_bytes = bytes_of(type);
    return algorithms()->bcast(&group, buffer, (long)count * item_bytes, item_bytes, root);
}

int own_Reduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    if (is_left_to_smpi(comm, send, type, type))
        return PMPI_Reduce(send, receive, count, type, op, root, comm);
    struct group group = group_of(comm);
    struct vector vector = {.type = type, .op = op, .count = count, .item_bytes = bytes_of(type)};
    return algorithms()->reduce(&group, &vector, send, receive, root);
}

int own_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    if (is_left_to_smpi(comm, send, type, type))
        return PMPI_Allreduce(send, receive, count, type, op, comm);
    struct group group = group_of(comm);
    struct vector vector = {.type = type, .op = op, .count = count, .item_bytes = bytes_of(type)};
    return algorithms()->allreduce(&group, &vector, send, receive);
}

int own_Gather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
               MPI_Datatype receive_type, int root, MPI_Comm comm)
{
    if (is_left_to_smpi(comm, send, send_type, receive_type))
        return PMPI_Gather(send, send_count, send_type, receive, receive_count, receive_type, root, comm);
    struct group group = group_of(comm);
    return algorithms()->gather(&group, send, (long)send_count * bytes_of(send_type), receive, root);
}

int own_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                MPI_Datatype receive_type, int root, MPI_Comm comm)
{
    if (is_left_to_smpi(comm, receive, send_type, receive_type))
        return PMPI_Scatter(send, send_count, send_type, receive, receive_count, receive_type, root, comm);
    struct group group = group_of(comm);
    return algorithms()->scatter(&group, send, (long)receive_count * bytes_of(receive_type), receive, root);
}

int own_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                  MPI_Datatype receive_type, MPI_Comm comm)
{
    if (is_left_to_smpi(comm, send, send_type, receive_type))
        return PMPI_Allgather(send, send_count, send_type, receive, receive_count, receive_type, comm);
    struct group group = group_of(comm);
    return algorithms()->allgather(&group, send, (long)send_count * bytes_of(send_type), receive);
}
