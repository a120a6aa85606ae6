/* MPI_Scatter and MPI_Scatterv (MPI-4.1, 6.6). */
#include "collectives.h"

#include "../alone.h"
#include "../real.h"
#include "blocks.h"
#include "kind.h"
#include "uneven.h"

/* `row`: at the root, that of all ranks. The own block's length is known. */
static void scatter(struct call *call, int *length, char *row, char *own, int root, int told)
{
    struct tree tree;
    tree_make(call, &tree, call->layout, NULL, 0, 0, root);
    if (call_ok(call))
        row = blocks_down(call, call->layout, &tree, 0, length, row, told);
    if (call_ok(call))
        site_down(call, length, row, own, tree.head);
}

int coll_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                 MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    struct call call;
    struct kind kind, own_kind;
    if (!call_begin(&call, OP_SCATTER, comm) || bad_root(&call, root))
        goto native;
    int size = call.layout->size, is_root = call.layout->rank == root, in_place = recv == MPI_IN_PLACE;
    if (is_root && !kind_of(&kind, send, send_count, send_type))
        goto native;
    if (in_place ? !is_root : !kind_of(&own_kind, recv, recv_count, recv_type))
        goto native;
    const void *place = is_root ? element(&kind, send, (long long)call.layout->rank * send_count) : NULL;
    if (is_root && is_equal(place, send_count, send_type, recv, recv_count, recv_type) &&
        REFUSED(real.Scatter(place, send_count, send_type, recv, recv_count, recv_type, 0, alone())))
        goto native;
    call.root = root;
    size_t bytes = in_place ? (size_t)send_count * kind.size : (size_t)recv_count * own_kind.size;
    if (!call_takes(&call, bytes, bytes * (size_t)size, 1))
        goto native;
    int *length = call_ints(&call, size);
    for (int r = 0; r < size && call_ok(&call); r++)
        length[r] = (int)bytes;
    char *row = is_root && !kind.plain ? call_memory(&call, bytes * (size_t)size) : (char *)send;
    for (int r = 0; r < size && is_root && !kind.plain && call_ok(&call); r++)
        stream_write(&call, &kind, element(&kind, send, (long long)r * send_count), send_count, row + (size_t)r * bytes);
    char *own = in_place ? call_memory(&call, bytes) : call_ok(&call) ? stream_room(&call, &own_kind, recv, recv_count) : NULL;
    if (call_ok(&call))
        scatter(&call, length, row, own, root, 0);
    if (!in_place)
        stream_read(&call, &own_kind, own, recv, recv_count);
    return call_end(&call);
native:
    return real.Scatter(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
}

/* The root sends large blocks directly, and none to itself; returns the row of the others. */
static char *root_sends(struct call *call, int *length, const struct kind *kind, const void *send, const int *counts,
                        const int *displs)
{
    size_t total = 0;
    for (int r = 0; r < call->layout->size; r++) {
        size_t bytes = (size_t)counts[r] * kind->size;
        int own = r == call->layout->rank;
        length[r] = is_large(bytes, call->layout->size) || own ? 0 : (int)bytes;
        total += (size_t)length[r];
        if (is_large(bytes, call->layout->size) && !own)
            call_send(call, element(kind, send, displs[r]), counts[r], kind->type, r, TAG_DIRECT);
    }
    char *row = call_memory(call, total), *to = row;
    for (int r = 0; r < call->layout->size && call_ok(call); r++) {
        if (length[r] == 0)
            continue;
        stream_write(call, kind, element(kind, send, displs[r]), counts[r], to);
        to += length[r];
    }
    return row;
}

int coll_Scatterv(const void *send, const int *send_counts, const int *displs, MPI_Datatype send_type, void *recv,
                  int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    struct call call;
    struct kind kind, own_kind;
    if (!call_begin(&call, OP_SCATTER, comm) || bad_root(&call, root))
        goto native;
    int rank = call.layout->rank, size = call.layout->size, is_root = rank == root, in_place = recv == MPI_IN_PLACE;
    if (is_root && (uneven_wrong(send_counts, displs, size) || !kind_of_type(&kind, send_type)))
        goto native;
    if (in_place ? !is_root : !kind_of(&own_kind, recv, recv_count, recv_type))
        goto native;
    const void *place = is_root ? element(&kind, send, displs[rank]) : NULL;
    if (is_root && is_equal(place, send_counts[rank], send_type, recv, recv_count, recv_type) &&
        REFUSED(real.Scatterv(place, &recv_count, (int[]){0}, send_type, recv, recv_count, recv_type, 0, alone())))
        goto native;
    if (!call_takes_uneven(&call))
        goto native;
    int *length = call_ints(&call, size), small = 0;
    char *row = NULL, *own = NULL;
    if (!call_ok(&call))
        return call_end(&call);
    if (is_root) {
        row = root_sends(&call, length, &kind, send, send_counts, displs);
        if (!in_place)
            block_copy(&call, &kind, place, send_counts[rank], &own_kind, recv, recv_count);
    } else {
        size_t bytes = (size_t)recv_count * own_kind.size;
        small = !is_large(bytes, size);
        length[rank] = small ? (int)bytes : 0;
        if (small)
            own = stream_room(&call, &own_kind, recv, recv_count);
        else
            call_receive(&call, recv, recv_count, recv_type, root, TAG_DIRECT);
    }
    if (call_ok(&call))
        scatter(&call, length, row, own, root, 1);
    if (small)
        stream_read(&call, &own_kind, own, recv, recv_count);
    return call_end(&call);
native:
    return real.Scatterv(send, send_counts, displs, send_type, recv, recv_count, recv_type, root, comm);
}
