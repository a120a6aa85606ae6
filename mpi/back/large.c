/* Large counts, where every rank's is a single one. */
#include "large.h"

#include <dlfcn.h>

#include "alone.h"
#include "collectives/collectives.h"
#include "real.h"
#include "spread.h"
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
    if (count < 0 || is_bad_type(datatype))
        return count <= INT_MAX;
    if (count > INT_MAX || real.Type_size(datatype, &size) != MPI_SUCCESS)
        return 0;
    /* A size that no int holds is MPI_UNDEFINED, which is negative. */
    return size >= 0 && count * (MPI_Count)size <= MESSAGE_MAX;
}

int large_at_root(int root, MPI_Comm comm)
{
    int rank = MPI_PROC_NULL, inter = 0;
    if (comm == MPI_COMM_NULL || real.Comm_test_inter(comm, &inter) != MPI_SUCCESS)
        return 0;
    /* There, other roots are ranks of the other group. */
    if (inter)
        return root == MPI_ROOT;
    return real.Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
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

/* The larger of the counts that are significant at this rank: `own` at those that aren't the root
 * and, within one group, at the root; `of_root` at the root. Of two groups, the root's other
 * ranks have none. */
static MPI_Count significant(int root, int at_root, MPI_Count own, MPI_Count of_root)
{
    if (root == MPI_PROC_NULL)
        return 0;
    if (root == MPI_ROOT)
        return of_root;
    return at_root ? most(own, of_root) : own;
}

int large_Bcast(void *buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm)
{
    if (LARGE_OWN(Bcast, comm))
        return real_large.Bcast(buffer, count, type, root, comm);
    if (large_fits(count, type))
        return coll_Bcast(buffer, narrow(count), type, root, comm);
    LARGE(Bcast, significant(root, 0, count, count), comm, (buffer, count, type, root, comm),
          (buffer, narrow(count), type, root, comm));
}

int large_Reduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    if (LARGE_OWN(Reduce, comm))
        return real_large.Reduce(send, recv, count, type, op, root, comm);
    if (large_fits(count, type))
        return coll_Reduce(send, recv, narrow(count), type, op, root, comm);
    LARGE(Reduce, significant(root, 0, count, count), comm, (send, recv, count, type, op, root, comm),
          (send, recv, narrow(count), type, op, root, comm));
}

int large_Allreduce(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    if (LARGE_OWN(Allreduce, comm))
        return real_large.Allreduce(send, recv, count, type, op, comm);
    if (large_fits(count, type))
        return coll_Allreduce(send, recv, narrow(count), type, op, comm);
    LARGE(Allreduce, count, comm, (send, recv, count, type, op, comm), (send, recv, (int)count, type, op, comm));
}

int large_Reduce_scatter_block(const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                               MPI_Comm comm)
{
    if (LARGE_OWN(Reduce_scatter_block, comm))
        return real_large.Reduce_scatter_block(send, recv, count, type, op, comm);
    if (large_fits(count, type))
        return coll_Reduce_scatter_block(send, recv, narrow(count), type, op, comm);
    LARGE(Reduce_scatter_block, count, comm, (send, recv, count, type, op, comm),
          (send, recv, (int)count, type, op, comm));
}

int large_Gather(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                 MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    if (LARGE_OWN(Gather, comm))
        return real_large.Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
    int at_root = large_at_root(root, comm);
    /* Every rank knows the same number of bytes, each from what is significant there. */
    if (at_root ? large_fits(recv_count, recv_type) : large_fits(send_count, send_type))
        return coll_Gather(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm);
    LARGE(Gather, significant(root, at_root, send == MPI_IN_PLACE ? 0 : send_count, recv_count), comm,
          (send, send_count, send_type, recv, recv_count, recv_type, root, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm));
}

int large_Scatter(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                  MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    if (LARGE_OWN(Scatter, comm))
        return real_large.Scatter(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
    int at_root = large_at_root(root, comm);
    if (at_root ? large_fits(send_count, send_type) : large_fits(recv_count, recv_type))
        return coll_Scatter(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm);
    LARGE(Scatter, significant(root, at_root, recv == MPI_IN_PLACE ? 0 : recv_count, send_count), comm,
          (send, send_count, send_type, recv, recv_count, recv_type, root, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, root, comm));
}

int large_Allgather(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                    MPI_Datatype recv_type, MPI_Comm comm)
{
    if (LARGE_OWN(Allgather, comm))
        return real_large.Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
    if (large_fits(recv_count, recv_type))
        return coll_Allgather(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm);
    LARGE(Allgather, most(send == MPI_IN_PLACE ? 0 : send_count, recv_count), comm,
          (send, send_count, send_type, recv, recv_count, recv_type, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm));
}

int large_Alltoall(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv, MPI_Count recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm)
{
    if (LARGE_OWN(Alltoall, comm))
        return real_large.Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
    if (large_fits(recv_count, recv_type))
        return coll_Alltoall(send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm);
    LARGE(Alltoall, most(send == MPI_IN_PLACE ? 0 : send_count, recv_count), comm,
          (send, send_count, send_type, recv, recv_count, recv_type, comm),
          (send, narrow(send_count), send_type, recv, narrow(recv_count), recv_type, comm));
}
