/* MPI_Gather and MPI_Gatherv (MPI-4.1, 6.5). */
#include "collectives.h"

#include "../alone.h"
#include "../real.h"
#include "blocks.h"
#include "kind.h"
#include "uneven.h"

/* Returns the row of all ranks at the root. */
static char *gather(struct call *call, int *length, const char *own, int root, int told)
{
    struct tree tree;
    tree_make(call, &tree, call->layout, NULL, 0, 0, root);
    if (told && call_ok(call))
        site_lengths(call, length, tree.head);
    if (!call_ok(call))
        return NULL;
    char *row = site_up(call, length, own, tree.head);
    return call_ok(call) ? blocks_up(call, call->layout, &tree, 0, length, row, told) : NULL;
}

int coll_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    struct call call;
    struct kind kind;
    if (!call_begin(&call, OP_GATHER, comm) || bad_root(&call, root))
        goto native;
    int rank = call.layout->rank, size = call.layout->size, is_root = rank == root;
    if (is_root ? !kind_of(&kind, recv, recv_count, recv_type) : send == MPI_IN_PLACE)
        goto native;
    void *place = is_root ? element(&kind, recv, (long long)rank * recv_count) : NULL;
    if (is_root && is_equal(send, send_count, send_type, place, recv_count, recv_type) &&
        REFUSED(real.Gather(send, send_count, send_type, place, recv_count, recv_type, 0, alone())))
        goto native;
    struct kind own_kind = kind;
    const void *own = send;
    int own_count = send_count;
    if (send == MPI_IN_PLACE) {
        own = place;
        own_count = recv_count;
    } else if (!kind_of(&own_kind, send, send_count, send_type)) {
        goto native;
    }
    call.root = root;
    size_t bytes = (size_t)own_count * own_kind.size;
    if (!call_takes(&call, bytes, bytes * (size_t)size, 1))
        goto native;
    int *length = call_ints(&call, size);
    for (int r = 0; r < size && call_ok(&call); r++)
        length[r] = (int)bytes;
    const char *stream = call_ok(&call) ? stream_of(&call, &own_kind, own, own_count) : NULL;
    char *row = call_ok(&call) ? gather(&call, length, stream, root, 0) : NULL;
    for (int r = 0; r < size && is_root && call_ok(&call); r++)
        if (r != rank || send != MPI_IN_PLACE)
            stream_read(&call, &kind, row + (size_t)r * bytes, element(&kind, recv, (long long)r * recv_count), recv_count);
    return call_end(&call);
native:
    return real.Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
}

/* The root receives large blocks directly, and has its own already. */
static void root_receives(struct call *call, int *length, const struct kind *kind, void *recv, const int *counts,
                          const int *displs)
{
    for (int r = 0; r < call->layout->size; r++) {
        size_t bytes = (size_t)counts[r] * kind->size;
        int own = r == call->layout->rank;
        length[r] = is_large(bytes, call->layout->size) || own ? 0 : (int)bytes;
        if (is_large(bytes, call->layout->size) && !own)
            call_receive(call, element(kind, recv, displs[r]), counts[r], kind->type, r, TAG_DIRECT);
    }
}

static void root_takes(struct call *call, const int *length, const struct kind *kind, void *recv, const int *counts,
                       const int *displs, const char *row)
{
    for (int r = 0; r < call->layout->size && call_ok(call); r++) {
        if (length[r] == 0)
            continue;
        stream_read(call, kind, row, element(kind, recv, displs[r]), counts[r]);
        row += length[r];
    }
}

int coll_Gatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *recv_counts,
                 const int *displs, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    struct call call;
    struct kind kind, own_kind;
    if (!call_begin(&call, OP_GATHER, comm) || bad_root(&call, root))
        goto native;
    int rank = call.layout->rank, size = call.layout->size, is_root = rank == root, in_place = send == MPI_IN_PLACE;
    if (is_root && (uneven_wrong(recv_counts, displs, size) || !kind_of_type(&kind, recv_type)))
        goto native;
    if (in_place ? !is_root : !kind_of(&own_kind, send, send_count, send_type))
        goto native;
    void *place = is_root ? element(&kind, recv, displs[rank]) : NULL;
    if (is_root && is_equal(send, send_count, send_type, place, recv_counts[rank], recv_type) &&
        REFUSED(real.Gatherv(send, send_count, send_type, place, &send_count, (int[]){0}, recv_type, 0, alone())))
        goto native;
    if (!call_takes_uneven(&call))
        goto native;
    if (call.algorithm == DIRECT) {
        direct_gather(&call, &own_kind, send, send_count, &kind, recv, recv_counts, displs, root);
        return call_end(&call);
    }
    int *length = call_ints(&call, size);
    const char *stream = NULL;
    if (!call_ok(&call))
        return call_end(&call);
    if (is_root) {
        root_receives(&call, length, &kind, recv, recv_counts, displs);
        if (!in_place)
            block_copy(&call, &own_kind, send, send_count, &kind, place, recv_counts[rank]);
    } else {
        size_t bytes = (size_t)send_count * own_kind.size;
        length[rank] = is_large(bytes, size) ? 0 : (int)bytes;
        if (is_large(bytes, size))
            call_send(&call, send, send_count, send_type, root, TAG_DIRECT);
        else
            stream = stream_of(&call, &own_kind, send, send_count);
    }
    char *row = gather(&call, length, stream, root, 1);
    if (is_root)
        root_takes(&call, length, &kind, recv, recv_counts, displs, row);
    return call_end(&call);
native:
    return real.Gatherv(send, send_count, send_type, recv, recv_counts, displs, recv_type, root, comm);
}
