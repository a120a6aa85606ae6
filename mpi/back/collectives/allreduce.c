/* MPI_Allreduce (MPI-4.1, 6.9.6): within the subsets of the widest tier upwards, between them
 * all at once, and downwards again. */
#include "collectives.h"

#include "../alone.h"
#include "../real.h"
#include "carried.h"
#include "fold.h"
#include "site.h"
#include "tree.h"

/* What one rank does for a share of the vector: a lane's or, with leaders, all of it. */
struct share {
    struct tree tree;     /* within the calling rank's subset of the widest tier */
    int count;            /* elements */
    char *own, *result;   /* the site's part, where the whole is to be */
    int parts;            /* of the subset: the children's and, as the last, the own one */
    char **part;
    int *arrived;
    int *peers;           /* [subsets] who stands for each subset of the widest tier */
    char **part_across;   /* [subsets] */
    int *arrived_across;
    int down;             /* the result from the parent */
};

static void find_peers(struct call *call, struct share *share, const struct tier *widest, const struct lanes *lanes,
                       int lane)
{
    share->peers = call_ints(call, widest->subsets);
    for (int s = 0; s < widest->subsets && call_ok(call); s++)
        share->peers[s] = tree_representative(lanes, lane, widest, s);
}

/* Starts to receive all that the others of the share will send. */
static void receive(struct call *call, const struct reduction *reduction, struct share *share, const struct tier *widest)
{
    const struct tree *tree = &share->tree;
    share->parts = tree->children + 1;
    share->part = call_memory(call, (size_t)share->parts * sizeof *share->part);
    share->arrived = call_ints(call, share->parts);
    share->part_across = call_memory(call, (size_t)widest->subsets * sizeof *share->part_across);
    share->arrived_across = call_ints(call, widest->subsets);
    share->down = -1;
    int *ranks = call_ints(call, share->parts);
    for (int c = 0; c < tree->children && call_ok(call); c++)
        ranks[c] = tree->child[c].rank;
    fold_receive(call, reduction, ranks, share->parts, tree->children, share->own, share->count, TAG_TREE, share->part,
                 share->arrived);
    if (tree->parent >= 0)
        share->down = call_receive(call, share->result, share->count, reduction->kind.type, tree->parent, TAG_DOWN);
    else
        fold_receive(call, reduction, share->peers, widest->subsets, widest->mine, NULL, share->count, TAG_ACROSS,
                     share->part_across, share->arrived_across);
}

/* The subset's part goes to the parent or, from the top, to all peers. */
static void send(struct call *call, const struct reduction *reduction, struct share *share, const struct tier *widest)
{
    char *folded = fold(call, reduction, share->part, share->arrived, share->parts, share->count);
    if (!call_ok(call))
        return;
    if (share->tree.parent >= 0) {
        call_send(call, folded, share->count, reduction->kind.type, share->tree.parent, TAG_TREE);
        return;
    }
    share->part_across[widest->mine] = folded;
    for (int i = 0; i + 1 < widest->subsets; i++) {
        int peer = share->peers[in_turn(widest->mine, i, widest->subsets)];
        call_send(call, folded, share->count, reduction->kind.type, peer, TAG_ACROSS);
    }
}

/* All peers combine the same parts in the same order. The own part may still be under way
 * to them, so that the sum isn't written into it. */
static void finish(struct call *call, const struct reduction *reduction, struct share *share, const struct tier *widest)
{
    const struct kind *kind = &reduction->kind;
    int last = widest->subsets - 1;
    if (!call_ok(call))
        return;
    if (share->tree.parent >= 0) {
        call_wait(call, share->down);
    } else {
        if (widest->mine == last) {
            char *copy = elements_memory(call, kind, share->count);
            elements_copy(call, kind, share->part_across[last], copy, share->count);
            share->part_across[last] = copy;
        }
        char *folded = fold(call, reduction, share->part_across, share->arrived_across, widest->subsets, share->count);
        elements_copy(call, kind, folded, share->result, share->count);
    }
    for (int c = 0; c < share->tree.children; c++)
        call_send(call, share->result, share->count, kind->type, share->tree.child[c].rank, TAG_DOWN);
}

static void cross(struct call *call, const struct reduction *reduction, struct share *share, int shares,
                  const struct tier *widest)
{
    for (int i = 0; i < shares && call_ok(call); i++)
        receive(call, reduction, &share[i], widest);
    for (int i = 0; i < shares && call_ok(call); i++)
        send(call, reduction, &share[i], widest);
    for (int i = 0; i < shares && call_ok(call); i++)
        finish(call, reduction, &share[i], widest);
}

static void by_leaders(struct call *call, const struct layout *layout, const struct reduction *reduction,
                       const void *send_buffer, char *recv, int count)
{
    const struct tier *widest = &layout->tier[0];
    struct share share = { .count = count, .result = recv };
    tree_make(call, &share.tree, layout, NULL, 0, 1, widest->leaders[widest->mine]);
    if (!call_ok(call))
        return;
    if (share.tree.member)
        share.own = elements_memory(call, &reduction->kind, count);
    site_reduce(call, reduction, send_buffer, share.own, count, share.tree.head);
    if (share.tree.member) {
        find_peers(call, &share, widest, NULL, 0);
        cross(call, reduction, &share, 1, widest);
    }
    site_bcast(call, &reduction->kind, recv, count, share.tree.head);
}

static void in_lanes(struct call *call, const struct layout *layout, const struct reduction *reduction,
                     const void *send_buffer, char *recv, int count)
{
    struct lanes lanes;
    struct shares shares;
    const struct tier *widest = &layout->tier[0];
    const struct kind *kind = &reduction->kind;
    int own = site_index(layout, layout->rank);
    char *part = reduce_shares(call, reduction, send_buffer, count, &lanes, &shares);
    if (!call_ok(call))
        return;
    int mine = shares.end - shares.first;
    struct share *share = call_memory(call, (size_t)mine * sizeof *share);
    for (int l = 0; l < mine && call_ok(call); l++) {
        int lane = shares.first + l, start = lanes_share(&lanes, lane, count);
        int top = tree_representative(&lanes, lane, widest, widest->mine);
        share[l] = (struct share){
            .count = lanes_share(&lanes, lane + 1, count) - start,
            .own = element(kind, part, start - shares.starts[own]),
            .result = element(kind, recv, start),
        };
        tree_make(call, &share[l].tree, layout, &lanes, lane, 1, top);
        find_peers(call, &share[l], widest, &lanes, lane);
    }
    if (call_ok(call))
        cross(call, reduction, share, mine, widest);
    /* Shares of the result that are still under way to others may not be written, nor read
     * by more than those sends: the allgather leaves them where they are. */
    site_allgather(call, kind, recv, shares.counts, shares.starts);
}

int coll_Allreduce(const void *send_buffer, void *recv, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct call call;
    struct reduction reduction;
    const void *input = send_buffer == MPI_IN_PLACE ? recv : send_buffer;
    if (!call_begin(&call, OP_ALLREDUCE, comm) || !reduction_of(&reduction, input, count, datatype, op) ||
        is_missing(&reduction.kind, recv, count) ||
        (send_buffer == recv && REFUSED(real.Allreduce(send_buffer, recv, count, datatype, op, alone()))))
        return real.Allreduce(send_buffer, recv, count, datatype, op, comm);
    size_t bytes = (size_t)count * reduction.kind.size;
    if (!call_takes(&call, bytes, bytes, reduction.commutative))
        return real.Allreduce(send_buffer, recv, count, datatype, op, comm);
    struct layout layout = reduction_layout(&call, &reduction);
    if (call_ok(&call)) {
        if (call.algorithm == SCATTERED)
            scattered_allreduce(&call, &reduction, input, recv, count);
        else if (call.algorithm == LANES)
            in_lanes(&call, &layout, &reduction, input, recv, count);
        else
            by_leaders(&call, &layout, &reduction, input, recv, count);
    }
    return call_end(&call);
}
