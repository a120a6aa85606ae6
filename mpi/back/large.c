/* Large counts, where every rank's is a single one. */
#include "large.h"

#include <dlfcn.h>

#include "collectives/collectives.h"
#include "real.h"
#include "start.h"

struct real_large real_large;

void large_start(void *mpi)
{
#define X(name, parameters) real_large.name = (int(*) parameters)(function)dlsym(mpi, "PMPI_" #name "_c");
    LARGE_CALLS(X)
#undef X
}

int large_fits(MPI_Count count, MPI_Datatype datatype)
{
    int size;
    if (count < 0 || datatype == MPI_DATATYPE_NULL)
        return count <= INT_MAX;
    if (count > INT_MAX || real.Type_size(datatype, &size) != MPI_SUCCESS)
        return 0;
    /* A size that no int holds is MPI_UNDEFINED, which is negative. */
    return size >= 0 && count * (MPI_Count)size <= MESSAGE_MAX;
}

int large_at_root(int root, MPI_Comm comm)
{
    int rank = MPI_PROC_NULL;
    if (root == MPI_ROOT)
        return 1;
    return comm != MPI_COMM_NULL && real.Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

/* What a call does that isn't small: the MPI's own with large counts, or its ordinary one
 * if the count is an int and only the bytes are many. */
#define LARGE(name, count, comm, large_arguments, small_arguments) \
    do { \
        if (real_large.name) \
            return real_large.name large_arguments; \
        return (count) <= INT_MAX ? real.name small_arguments : refuse_call(comm, MPI_ERR_COUNT); \
    } while (0)

/* A negative count stays negative. */
static int narrow(MPI_Count count)
{
    return count < 0 ? -1 : count > INT_MAX ? INT_MAX : (int)count;
}

static MPI_Count most(MPI_Count a, MPI_Count b)
{
    return a > b ? a : b;
}

int large_Bcast(void *buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm)
{
    if (large_fits(count, type))
        return coll_Bcast(buffer, narrow(count), type, root, comm);
    LARGE(Bcast, count, comm, (buffer, count, type, root, comm), (buffer, (int)count, type, root, comm));
}

int large_Reduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    if (large_fits(count, type))
        return coll_Reduce(send, recv, narrow(count), type, op, root, comm);
    LARGE(Reduce, count, comm, (send, recv, count, type, op, root, comm),
          (send, recv, (int)count, type, op, root, comm));
}

int large_Allreduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    if (large_fits(count, type))
        return coll_Allreduce(send, recv, narrow(count), type, op, comm);
    LARGE(Allreduce, count, comm, (send, recv, count, type, op, comm), (send, recv, (int)count, type, op, comm));
}

int large_Reduce_scatter_block(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                               MPI_Comm comm)
{
    if (large_fits(count, type))
        return coll_Reduce_scatter_block(send, recv, narrow(count), type, op, comm);
    LARGE(Reduce_scatter_block, count, comm, (send, recv, count, type, op, comm),
          (send, recv, (int)count, type, op, comm));
}

int large_Gather(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                 MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    int at_root = large_at_root(root, comm);
    /* Every rank knows the same number of bytes, each from what is significant there. */
    if (at_root ? large_fits(recv_count, recv_type) : large_fits(send_count, send_type))
        return coll_Gather(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm);
    LARGE(Gather, at_root ? most(send == MPI_IN_PLACE ? 0 : send_count, recv_count) : send_count, comm,
          (send, send_count, send_type, recv, recv_count, recv_type, root, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm));
}

int large_Scatter(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                  MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    int at_root = large_at_root(root, comm);
    if (at_root ? large_fits(send_count, send_type) : large_fits(recv_count, recv_type))
        return coll_Scatter(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm);
    LARGE(Scatter, at_root ? most(recv == MPI_IN_PLACE ? 0 : recv_count, send_count) : recv_count, comm,
          (send, send_count, send_type, recv, recv_count, recv_type, root, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm));
}

int large_Allgather(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                    MPI_Datatype recv_type, MPI_Comm comm)
{
    if (large_fits(recv_count, recv_type))
        return coll_Allgather(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm);
    LARGE(Allgather, most(send == MPI_IN_PLACE ? 0 : send_count, recv_count), comm,
          (send, send_count, send_type, recv, recv_count, recv_type, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm));
}

int large_Alltoall(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm)
{
    if (large_fits(recv_count, recv_type))
        return coll_Alltoall(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm);
    LARGE(Alltoall, most(send == MPI_IN_PLACE ? 0 : send_count, recv_count), comm,
          (send, send_count, send_type, recv, recv_count, recv_type, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm));
}
