/* The MPI's own functions under SMPI, and what stands in for those that it lacks. */
#include "../back/real.h"

#include <stdlib.h>
#include <string.h>

#include "own.h"
#include "simulated.h"

struct real real;

/* Those that SMPI lacks are NULL, and nothing calls them here. */
#define X(name) extern __typeof__(PMPI_##name) PMPI_##name __attribute__((weak));
REAL_CALLS(X)
#undef X

#define TAG 1

static int broadcast(void *bytes, int length, MPI_Comm comm)
{
    int rank, size, step = 1, rc = MPI_SUCCESS;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    for (; step < size && !(rank & step); step *= 2)
        ;
    if (rank > 0)
        rc = PMPI_Recv(bytes, length, MPI_BYTE, rank - step, TAG, comm, MPI_STATUS_IGNORE);
    while ((step /= 2) > 0 && rc == MPI_SUCCESS)
        if (rank + step < size)
            rc = PMPI_Send(bytes, length, MPI_BYTE, rank + step, TAG, comm);
    return rc;
}

/* SMPI's own has each rank send to each other one, and so have some of its blocking ones. With
 * 2,000 ranks that is millions of messages. */
static int gather_to_all(const void *own, int bytes, void *all, MPI_Comm comm)
{
    int size;
    PMPI_Comm_size(comm, &size);
    int rc = PMPI_Gather(own, bytes, MPI_BYTE, all, bytes, MPI_BYTE, 0, comm);
    return rc == MPI_SUCCESS ? broadcast(all, bytes * size, comm) : rc;
}

static int iallgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                      MPI_Datatype receive_type, MPI_Comm comm, MPI_Request *request)
{
    (void)receive_count, (void)receive_type;
    int size;
    PMPI_Type_size(send_type, &size);
    *request = MPI_REQUEST_NULL;
    return gather_to_all(send, send_count * size, receive, comm);
}

/* Keys ascend with the ranks, as the library gives them. In SMPI's own, rank 0 makes and sends
 * a group for each rank. */
static int comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    int size, members = 0;
    (void)key;
    PMPI_Comm_size(comm, &size);
    int *colors = malloc(2 * (size_t)size * sizeof *colors);
    if (!colors)
        return MPI_ERR_NO_MEM;
    int rc = gather_to_all(&color, sizeof color, colors, comm), *ranks = colors + size;
    for (int i = 0; i < size; i++)
        if (colors[i] == color)
            ranks[members++] = i;
    MPI_Group whole, part;
    if (rc == MPI_SUCCESS)
        rc = PMPI_Comm_group(comm, &whole);
    if (rc == MPI_SUCCESS)
        rc = PMPI_Group_incl(whole, members, ranks, &part);
    if (rc == MPI_SUCCESS)
        rc = PMPI_Comm_create(comm, part, made);
    free(colors);
    return rc;
}

/* What ranks tell each other of a communicator, and nothing that is measured, is spared SMPI's
 * algorithm, in which each rank sends to each other one. */
static int allgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                     MPI_Datatype receive_type, MPI_Comm comm)
{
    if (send_type != MPI_BYTE)
        return own_Allgather(send, send_count, send_type, receive, receive_count, receive_type, comm);
    return gather_to_all(send, send_count, receive, comm);
}

static long length_of(int count, MPI_Datatype type)
{
    int size;
    PMPI_Type_size(type, &size);
    return (long)count * size;
}

/* Ranks know how long the messages are that they receive here. */
static int isend(const void *bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    return PMPI_Isend(bytes, count, type, to, tag_of(tag, length_of(count, type)), comm, request);
}

static int irecv(void *bytes, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    return PMPI_Irecv(bytes, count, type, from, tag_of(tag, length_of(count, type)), comm, request);
}

static int test(MPI_Request *request, int *done, MPI_Status *status)
{
    if (*request != MPI_REQUEST_NULL)
        return PMPI_Test(request, done, status);
    *done = 1;
    return MPI_SUCCESS;
}

static int test_inter(MPI_Comm comm, int *inter)
{
    (void)comm;
    *inter = 0;
    return MPI_SUCCESS;
}

static int comm_get_parent(MPI_Comm *parent)
{
    *parent = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

/* Of predefined types, the only ones that are measured. */
static int type_get_true_extent(MPI_Datatype type, MPI_Aint *lb, MPI_Aint *extent)
{
    return PMPI_Type_get_extent(type, lb, extent);
}

static int type_get_envelope(MPI_Datatype type, int *integers, int *addresses, int *types, int *combiner)
{
    (void)type;
    *integers = *addresses = *types = 0;
    *combiner = MPI_COMBINER_NAMED;
    return MPI_SUCCESS;
}

void real_fill(void)
{
#define X(name) real.name = PMPI_##name;
    REAL_CALLS(X)
#undef X
    real.Barrier = own_Barrier;
    real.Bcast = own_Bcast;
    real.Reduce = own_Reduce;
    real.Allreduce = own_Allreduce;
    real.Gather = own_Gather;
    real.Scatter = own_Scatter;
    real.Iallgather = iallgather;
    real.Allgather = allgather;
    real.Isend = isend;
    real.Irecv = irecv;
    real.Comm_split = comm_split;
    real.Test = test;
    real.Comm_test_inter = test_inter;
    real.Comm_get_parent = comm_get_parent;
    real.Type_get_true_extent = type_get_true_extent;
    real.Type_get_envelope = type_get_envelope;
}

enum family simulated_family(void)
{
    const char *mpi = getenv("ISTHMUS_SIMULATED");
    return mpi && strcmp(mpi, "mpich") == 0 ? FAMILY_MPICH : FAMILY_OPENMPI;
}

int refuse_call(MPI_Comm comm, int error)
{
    (void)comm;
    return error;
}
