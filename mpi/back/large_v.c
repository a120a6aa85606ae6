/* Large counts, where they differ from rank to rank.
 *
 * Inside one site each rank takes the MPI's own with large counts. Between sites that would
 * not do: in Gatherv only the root knows the counts, so that it can't leave the others, who
 * have begun the ordinary call. There, counts and displacements that no int holds fail. */
#include <stdlib.h>

#include "collectives/collectives.h"
#include "large.h"
#include "real.h"
#include "spread.h"

/* Counts and displacements as ints. */
struct narrow {
    int *counts, *displs;
    int error;          /* MPI_SUCCESS, MPI_ERR_COUNT or MPI_ERR_NO_MEM */
};

/* The number of counts in the arguments: that of ranks, in the other group where there is one. */
static int peers(MPI_Comm comm)
{
    int inter = 0, size = 0;
    if (comm == MPI_COMM_NULL || real.Comm_test_inter(comm, &inter) != MPI_SUCCESS)
        return 0;
    return (inter ? real.Comm_remote_size(comm, &size) : real.Comm_size(comm, &size)) == MPI_SUCCESS ? size : 0;
}

static void narrow_free(struct narrow *narrow)
{
    free(narrow->counts);
    free(narrow->displs);
}

/* `displs` may be NULL. Without `counts`, as where they don't matter, nothing is made. */
static struct narrow narrow_make(const MPI_Count *counts, const MPI_Aint *displs, int size)
{
    struct narrow narrow = {.error = MPI_SUCCESS};
    if (!counts)
        return narrow;
    narrow.counts = malloc((size_t)(size + 1) * sizeof *narrow.counts);
    narrow.displs = displs ? malloc((size_t)(size + 1) * sizeof *narrow.displs) : NULL;
    if (!narrow.counts || (displs && !narrow.displs)) {
        narrow.error = MPI_ERR_NO_MEM;
        return narrow;
    }
    for (int i = 0; i < size; i++) {
        if (counts[i] > INT_MAX || counts[i] < INT_MIN || (displs && (displs[i] > INT_MAX || displs[i] < INT_MIN)))
            narrow.error = MPI_ERR_COUNT;
        narrow.counts[i] = (int)counts[i];
        if (displs)
            narrow.displs[i] = (int)displs[i];
    }
    return narrow;
}

/* Of two groups, those at the root give or get nothing but as the root. */
static int is_of_root_group(int root)
{
    return root == MPI_ROOT || root == MPI_PROC_NULL;
}

/* A single count, where it is significant. */
static int narrow_one(MPI_Count count, int significant, int *error)
{
    if (!significant)
        return 0;
    if (count > INT_MAX)
        *error = MPI_ERR_COUNT;
    return count < 0 ? -1 : (int)count;
}

/* The sum of counts in bytes, or more than MESSAGE_MAX. All ranks know it. */
static int sum_fits(const MPI_Count *counts, int size, MPI_Datatype type)
{
    MPI_Count sum = 0;
    for (int i = 0; i < size; i++) {
        if (counts[i] > MESSAGE_MAX)
            return 0;
        sum += counts[i] > 0 ? counts[i] : 0;
        if (sum > MESSAGE_MAX)
            return 0;
    }
    return large_fits(sum, type);
}

/* Frees and returns what a call returns, or refuses it. */
#define FINISH(narrow, error, comm, call) \
    int rc = (error) == MPI_SUCCESS ? (call) : refuse_call(comm, error); \
    narrow_free(&(narrow)); \
    return rc

int large_Gatherv(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,
                  const MPI_Count *counts, const MPI_Aint *displs, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    if (LARGE_OWN(Gatherv, comm))
        return real_large.Gatherv(send, send_count, send_type, recv, counts, displs, recv_type, root, comm);
    struct narrow at_root = {.error = MPI_SUCCESS};
    if (large_at_root(root, comm))
        at_root = narrow_make(counts, displs, peers(comm));
    int error = at_root.error;
    int own = narrow_one(send_count, send != MPI_IN_PLACE && !is_of_root_group(root), &error);
    FINISH(at_root, error, comm,
           coll_Gatherv(send, own, send_type, recv, at_root.counts, at_root.displs, recv_type, root, comm));
}

int large_Scatterv(const void *send, const MPI_Count *counts, const MPI_Aint *displs, MPI_Datatype send_type,
                   void *recv, MPI_Count recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    if (LARGE_OWN(Scatterv, comm))
        return real_large.Scatterv(send, counts, displs, send_type, recv, recv_count, recv_type, root, comm);
    struct narrow at_root = {.error = MPI_SUCCESS};
    if (large_at_root(root, comm))
        at_root = narrow_make(counts, displs, peers(comm));
    int error = at_root.error;
    int own = narrow_one(recv_count, recv != MPI_IN_PLACE && !is_of_root_group(root), &error);
    FINISH(at_root, error, comm,
           coll_Scatterv(send, at_root.counts, at_root.displs, send_type, recv, own, recv_type, root, comm));
}

int large_Allgatherv(const void *send, MPI_Count send_count, MPI_Datatype send_type, void *recv,
                     const MPI_Count *counts, const MPI_Aint *displs, MPI_Datatype recv_type, MPI_Comm comm)
{
    int size = peers(comm);
    if (real_large.Allgatherv && (!spread_of(comm) || !counts || !sum_fits(counts, size, recv_type)))
        return real_large.Allgatherv(send, send_count, send_type, recv, counts, displs, recv_type, comm);
    struct narrow all = narrow_make(counts, displs, size);
    int error = all.error, own = narrow_one(send_count, send != MPI_IN_PLACE, &error);
    FINISH(all, error, comm, coll_Allgatherv(send, own, send_type, recv, all.counts, all.displs, recv_type, comm));
}

int large_Reduce_scatter(const void *send, void *recv, const MPI_Count *counts, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm)
{
    int size = 0;
    if (comm != MPI_COMM_NULL)
        real.Comm_size(comm, &size);
    if (real_large.Reduce_scatter && (!spread_of(comm) || !counts || !sum_fits(counts, size, type)))
        return real_large.Reduce_scatter(send, recv, counts, type, op, comm);
    struct narrow all = narrow_make(counts, NULL, size);
    FINISH(all, all.error, comm, coll_Reduce_scatter(send, recv, all.counts, type, op, comm));
}

int large_Alltoallv(const void *send, const MPI_Count *send_counts, const MPI_Aint *send_displs,
                    MPI_Datatype send_type, void *recv, const MPI_Count *recv_counts, const MPI_Aint *recv_displs,
                    MPI_Datatype recv_type, MPI_Comm comm)
{
    if (LARGE_OWN(Alltoallv, comm))
        return real_large.Alltoallv(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs,
                                    recv_type, comm);
    int size = peers(comm);
    struct narrow to = {.error = MPI_SUCCESS}, from = narrow_make(recv_counts, recv_displs, size);
    if (send != MPI_IN_PLACE)
        to = narrow_make(send_counts, send_displs, size);
    int error = to.error != MPI_SUCCESS ? to.error : from.error;
    int rc = error == MPI_SUCCESS ? coll_Alltoallv(send, to.counts, to.displs, send_type, recv, from.counts,
                                                   from.displs, recv_type, comm)
                                  : refuse_call(comm, error);
    narrow_free(&to);
    narrow_free(&from);
    return rc;
}
