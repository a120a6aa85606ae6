/* MPI_Bcast (MPI-4.1, 6.4). */
#include "collectives.h"

#include "../real.h"
#include "carried.h"
#include "kind.h"
#include "site.h"
#include "tree.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Piece by piece, so that one piece crosses while the one before it spreads in the site. */
static void in_pieces(struct call *call, char *stream, size_t length, size_t piece, int root)
{
    struct tree tree;
    struct kind kind = kind_of_bytes();
    int pieces = (int)((length + piece - 1) / piece);
    int *arrived = call_ints(call, pieces);
    tree_make(call, &tree, call->layout, NULL, 0, 0, root);
    for (int p = 0; p < pieces && call_ok(call); p++) {
        size_t start = (size_t)p * piece;
        arrived[p] = tree.parent < 0 ? -1
                                     : call_receive_bytes(call, stream + start, smaller(piece, length - start), tree.parent);
    }
    for (int p = 0; p < pieces && call_ok(call); p++) {
        size_t start = (size_t)p * piece, bytes = smaller(piece, length - start);
        call_wait(call, arrived[p]);
        for (int c = 0; c < tree.children; c++)
            call_send_bytes(call, stream + start, bytes, tree.child[c].rank);
        site_bcast(call, &kind, stream + start, (int)bytes, tree.head);
    }
}

/* The shares that this rank takes over the crossings. */
static void cross(struct call *call, const struct lanes *lanes, const struct shares *shares, char *stream, int length,
                  int root)
{
    int count = shares->end - shares->first;
    struct tree *tree = call_memory(call, (size_t)count * sizeof *tree);
    int *arrived = call_ints(call, count);
    for (int l = 0; l < count && call_ok(call); l++) {
        int lane = shares->first + l;
        int start = lanes_share(lanes, lane, length), end = lanes_share(lanes, lane + 1, length);
        tree_make(call, &tree[l], call->layout, lanes, lane, 0, lanes_holder(lanes, call->layout->site_of[root], lane));
        arrived[l] = -1;
        if (call_ok(call) && tree[l].parent >= 0)
            arrived[l] = call_receive_bytes(call, stream + start, (size_t)(end - start), tree[l].parent);
    }
    for (int l = 0; l < count && call_ok(call); l++) {
        int start = lanes_share(lanes, shares->first + l, length), end = lanes_share(lanes, shares->first + l + 1, length);
        call_wait(call, arrived[l]);
        for (int c = 0; c < tree[l].children; c++)
            call_send_bytes(call, stream + start, (size_t)(end - start), tree[l].child[c].rank);
    }
}

/* The root's site has the whole from the root, since nobody may write into its buffer;
 * others put their shares together. */
static void in_lanes(struct call *call, char *stream, int length, int root)
{
    struct lanes lanes;
    struct shares shares;
    struct kind bytes = kind_of_bytes();
    const struct layout *layout = call->layout;
    int own = site_index(layout, layout->rank), at_root = layout->site_of[root] == layout->site_of[layout->rank];
    lanes_make(call, &lanes, 0);
    if (!call_ok(call))
        return;
    shares_make(call, &shares, &lanes, length);
    if (at_root && call_ok(call))
        site_scatter(call, &bytes, stream, shares.counts, shares.starts, stream + shares.starts[own], shares.counts[own],
                     site_index(layout, root));
    if (call_ok(call))
        cross(call, &lanes, &shares, stream, length, root);
    if (at_root) {
        /* The rest comes into the buffer of which a share is still being sent. */
        call_wait_all(call);
        site_bcast(call, &bytes, stream, length, site_index(layout, root));
    } else if (call_ok(call)) {
        site_allgather(call, &bytes, stream, shares.counts, shares.starts);
    }
}

int coll_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
    struct call call;
    struct kind kind;
    if (!call_begin(&call, OP_BCAST, comm) || bad_root(&call, root) || !kind_of(&kind, buffer, count, datatype))
        return real.Bcast(buffer, count, datatype, root, comm);
    call.root = root;
    size_t length = (size_t)count * kind.size;
    if (!call_takes(&call, length, length, 1))
        return real.Bcast(buffer, count, datatype, root, comm);
    int is_root = call.layout->rank == root;
    char *stream = is_root ? stream_of(&call, &kind, buffer, count) : stream_room(&call, &kind, buffer, count);
    if (call_ok(&call)) {
        if (call.algorithm == SCATTERED)
            scattered_bcast(&call, stream, (int)length, root);
        else if (call.algorithm == RELAYED)
            relayed_bcast(&call, stream, (int)length, root);
        else if (call.algorithm == LANES)
            in_lanes(&call, stream, (int)length, root);
        else
            in_pieces(&call, stream, length, call.algorithm == LEADERS ? length : segment_bytes(length), root);
    }
    if (!is_root)
        stream_read(&call, &kind, stream, buffer, count);
    return call_end(&call);
}
