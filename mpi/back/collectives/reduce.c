/* MPI_Reduce (MPI-4.1, 6.9.1): MPI_Bcast backwards. */
#include "collectives.h"

#include "../alone.h"
#include "../real.h"
#include "carried.h"
#include "fold.h"
#include "site.h"
#include "tree.h"

/* What one who stands for others combines: the parts of its children and its own among
 * them, in order. */
struct junction {
    struct tree tree;
    int parts;
    char **part;      /* [parts] all elements of each */
    int *ranks;       /* [parts] whose they are */
    int own;          /* which is the calling rank's */
};

static void junction_make(struct call *call, struct junction *junction)
{
    const struct tree *tree = &junction->tree;
    junction->parts = tree->children + 1;
    junction->own = tree->before;
    junction->ranks = call_ints(call, junction->parts);
    junction->part = call_memory(call, (size_t)junction->parts * sizeof *junction->part);
    if (!call_ok(call))
        return;
    for (int c = 0; c < tree->children; c++)
        junction->ranks[c < tree->before ? c : c + 1] = tree->child[c].rank;
    junction->ranks[junction->own] = call->layout->rank;
}

/* Combines `count` elements from `start` and passes them on, or leaves them at the root. */
static void junction_pass(struct call *call, const struct reduction *reduction, const struct junction *junction,
                          const int *arrived, char **place, int start, int count, char *result)
{
    for (int i = 0; i < junction->parts; i++)
        place[i] = element(&reduction->kind, junction->part[i], start);
    char *folded = fold(call, reduction, place, arrived, junction->parts, count);
    if (!call_ok(call))
        return;
    if (junction->tree.parent >= 0)
        call_send(call, folded, count, reduction->kind.type, junction->tree.parent, TAG_ACROSS);
    else
        elements_copy(call, &reduction->kind, folded, element(&reduction->kind, result, start), count);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Piece by piece: one crosses while the next is reduced in the site. */
static void in_pieces(struct call *call, const struct layout *layout, const struct reduction *reduction,
                      const void *send, void *recv, int count, int piece, int root)
{
    struct junction at;
    const struct kind *kind = &reduction->kind;
    tree_make(call, &at.tree, layout, NULL, 0, 0, root);
    if (!call_ok(call))
        return;
    junction_make(call, &at);
    int pieces = (count - 1) / piece + 1;
    int *arrived = call_ints(call, at.parts * pieces);
    char **place = call_memory(call, (size_t)at.parts * sizeof *place);
    for (int i = 0; i < at.parts && call_ok(call); i++)
        at.part[i] = at.tree.member ? elements_memory(call, kind, count) : NULL;
    for (int i = 0; i < at.parts * pieces && call_ok(call); i++) {
        int start = i / at.parts * piece, from = i % at.parts;
        arrived[i] = from == at.own ? -1 : call_receive(call, element(kind, at.part[from], start),
                                                        smaller(piece, count - start), kind->type, at.ranks[from], TAG_ACROSS);
    }
    int passed = 0;
    for (int p = 0; p < pieces && call_ok(call); p++) {
        int start = p * piece;
        char *to = at.tree.member ? element(kind, at.part[at.own], start) : NULL;
        site_reduce(call, reduction, element(kind, send, start), to, smaller(piece, count - start), at.tree.head);
        /* The root has nobody to pass a piece on to, so that its site needn't wait for others. */
        int ready = at.tree.parent >= 0 ? p + 1 : at.tree.member && p + 1 == pieces ? pieces : 0;
        for (; passed < ready && call_ok(call); passed++)
            junction_pass(call, reduction, &at, arrived + passed * at.parts, place, passed * piece,
                          smaller(piece, count - passed * piece), recv);
    }
}

/* The shares of the calling rank, from its site's part to the holders at the root's site. */
static void cross(struct call *call, const struct layout *layout, const struct reduction *reduction,
                  const struct lanes *lanes, const struct shares *shares, char *own, int base, int count, int root)
{
    int mine = shares->end - shares->first;
    struct junction *at = call_memory(call, (size_t)mine * sizeof *at);
    int **arrived = call_memory(call, (size_t)mine * sizeof *arrived);
    for (int l = 0; l < mine && call_ok(call); l++) {
        int lane = shares->first + l, start = lanes_share(lanes, lane, count);
        tree_make(call, &at[l].tree, layout, lanes, lane, 0, lanes_holder(lanes, layout->site_of[root], lane));
        if (call_ok(call))
            junction_make(call, &at[l]);
        arrived[l] = call_ok(call) ? call_ints(call, at[l].parts) : NULL;
        if (call_ok(call))
            fold_receive(call, reduction, at[l].ranks, at[l].parts, at[l].own, element(&reduction->kind, own, start - base),
                         lanes_share(lanes, lane + 1, count) - start, TAG_ACROSS, at[l].part, arrived[l]);
    }
    for (int l = 0; l < mine && call_ok(call); l++) {
        int lane = shares->first + l, start = lanes_share(lanes, lane, count);
        char **place = call_memory(call, (size_t)at[l].parts * sizeof *place);
        if (call_ok(call))
            junction_pass(call, reduction, &at[l], arrived[l], place, 0, lanes_share(lanes, lane + 1, count) - start,
                          element(&reduction->kind, own, start - base));
    }
}

static void in_lanes(struct call *call, const struct layout *layout, const struct reduction *reduction,
                     const void *send, void *recv, int count, int root)
{
    struct lanes lanes;
    struct shares shares;
    const struct kind *kind = &reduction->kind;
    int own = site_index(layout, layout->rank);
    char *part = reduce_shares(call, reduction, send, count, &lanes, &shares);
    if (!call_ok(call))
        return;
    cross(call, layout, reduction, &lanes, &shares, part, shares.starts[own], count, root);
    if (layout->site_of[root] == layout->site_of[layout->rank])
        site_gather(call, kind, part, shares.counts[own], recv, shares.counts, shares.starts, site_index(layout, root));
}

int coll_Reduce(const void *send, void *recv, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm)
{
    struct call call;
    struct reduction reduction;
    if (!call_begin(&call, OP_REDUCE, comm) || bad_root(&call, root) ||
        (call.layout->rank != root && send == MPI_IN_PLACE))
        return real.Reduce(send, recv, count, datatype, op, root, comm);
    const void *input = send == MPI_IN_PLACE ? recv : send;
    if (!reduction_of(&reduction, input, count, datatype, op) ||
        (call.layout->rank == root &&
         (is_missing(&reduction.kind, recv, count) ||
          (send == recv && REFUSED(real.Reduce(send, recv, count, datatype, op, 0, alone()))))))
        return real.Reduce(send, recv, count, datatype, op, root, comm);
    call.root = root;
    size_t bytes = (size_t)count * reduction.kind.size;
    if (!call_takes(&call, bytes, bytes, reduction.commutative))
        return real.Reduce(send, recv, count, datatype, op, root, comm);
    struct layout layout = reduction_layout(&call, &reduction);
    if (call_ok(&call)) {
        if (call.algorithm == SCATTERED)
            scattered_reduce(&call, &reduction, input, recv, count, root);
        else if (call.algorithm == RELAYED)
            relayed_reduce(&call, &reduction, input, recv, count, root);
        else if (call.algorithm == LANES)
            in_lanes(&call, &layout, &reduction, input, recv, count, root);
        else
            in_pieces(&call, &layout, &reduction, input, recv, count,
                      call.algorithm == LEADERS ? count : segment_elements(&reduction.kind, count), root);
    }
    return call_end(&call);
}
