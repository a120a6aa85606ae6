/* Reductions of the ranks of the calling one's site: see site.h. */
#include "../real.h"
#include "site_parts.h"

/* Up to so many ranks exchange their parts directly: one step, and one message for each other rank. */
#define DIRECT_MEMBERS 8

/* The tree upwards. Its parts are in the order of ranks if the head is the first. Returns the sum at the
 * head. */
static const char *sum_up(struct call *call, const struct reduction *reduction, const void *send, int count, int head)
{
    struct branch branch = site_branch(call, head);
    char *part[33];
    int ranks[33], arrived[33];
    for (int c = 0; c < branch.children; c++)
        ranks[c + 1] = call->layout->site_ranks[branch.child[c]];
    ranks[0] = call->layout->rank;
    /* What fold() writes to is the last part, which is this rank's own only where it is alone. */
    fold_receive(call, reduction, ranks, branch.children + 1, 0, (char *)send, count, TAG_SITE, part, arrived);
    char *sum = fold(call, reduction, part, arrived, branch.children + 1, count);
    if (branch.parent >= 0 && call_ok(call))
        call_wait(call, site_send(call, &reduction->kind, sum, count, branch.parent));
    return sum;
}

static void reduce_by_tree(struct call *call, const struct reduction *reduction, const void *send, void *result, int count,
                           int head)
{
    const struct kind *kind = &reduction->kind;
    int top = reduction->commutative ? head : 0, own = site_own_index(call);
    const char *sum = sum_up(call, reduction, send, count, top);
    if (top == head && own == head)
        elements_copy(call, kind, sum, result, count);
    else if (own == top && top != head)
        call_wait(call, site_send(call, kind, sum, count, head));
    else if (own == head)
        call_wait(call, site_receive(call, kind, result, count, top));
}

/* Each combines its part, directly from all others. */
static void reduce_directly(struct call *call, const struct reduction *reduction, const void *send, void *result,
                            const int *counts)
{
    const struct kind *kind = &reduction->kind;
    int members = call->layout->site_members, own = site_own_index(call), start = 0, own_start = 0;
    int first = call->requests;
    char **part = call_memory(call, (size_t)members * sizeof *part);
    int *arrived = call_ints(call, members);
    if (!call_ok(call))
        return;
    if (counts[own] > 0)
        fold_receive(call, reduction, call->layout->site_ranks, members, own, NULL, counts[own], TAG_SITE, part, arrived);
    for (int i = 0; i < members; i++) {
        if (i == own)
            own_start = start;
        else if (counts[i] > 0)
            site_send(call, kind, element(kind, send, start), counts[i], i);
        start += counts[i];
    }
    if (counts[own] > 0) {
        part[own] = element(kind, send, own_start);
        /* fold() writes to the last part. */
        if (own == members - 1) {
            part[own] = elements_memory(call, kind, counts[own]);
            elements_copy(call, kind, element(kind, send, own_start), part[own], counts[own]);
        }
        elements_copy(call, kind, fold(call, reduction, part, arrived, members, counts[own]), result, counts[own]);
    }
    call_wait_since(call, first);
}

/* The same in rounds, in each of which each sends to one and receives from one: bring_together()
 * backwards. Many at a site needn't all have connections with each other. Combines in another order
 * than that of ranks.
 *
 * Source: J. L. Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024,
 * arXiv:2410.14234. */
static void reduce_in_rounds(struct call *call, const struct reduction *reduction, const void *send, void *result,
                             const int *counts)
{
    const struct kind *kind = &reduction->kind;
    int members = call->layout->site_members, own = site_own_index(call), total = 0, distance = 1;
    int *starts = call_ints(call, members);
    for (int i = 0; i < members && call_ok(call); i++) {
        starts[i] = total;
        total += counts[i];
    }
    char *sums = elements_memory(call, kind, total), *come = elements_memory(call, kind, total);
    elements_copy(call, kind, send, sums, total);
    while (distance * 2 < members)
        distance *= 2;
    for (; distance >= 1 && call_ok(call); distance /= 2) {
        int parts = distance < members - distance ? distance : members - distance, arrived[2] = { -1, -1 };
        int to = (own + distance) % members, from = (own - distance + members) % members;
        struct range out[2], in[2];
        site_ranges(out, counts, starts, members, to, parts);
        site_ranges(in, counts, starts, members, own, parts);
        for (int i = 0; i < 2; i++) {
            if (in[i].count > 0)
                arrived[i] = site_receive(call, kind, element(kind, come, in[i].start), in[i].count, from);
            if (out[i].count > 0)
                site_send(call, kind, element(kind, sums, out[i].start), out[i].count, to);
        }
        /* What is still under way to others is behind all that is combined from here on. */
        for (int i = 0; i < 2; i++) {
            call_wait(call, arrived[i]);
            if (in[i].count > 0)
                CALL_DO(call, real.Reduce_local(element(kind, come, in[i].start), element(kind, sums, in[i].start),
                                                in[i].count, kind->type, reduction->op));
        }
    }
    if (call_ok(call))
        elements_copy(call, kind, element(kind, sums, starts[own]), result, counts[own]);
}

static void reduce_parts(struct call *call, const struct reduction *reduction, const void *send, void *result,
                         const int *counts)
{
    if (reduction->commutative && call->layout->site_members > DIRECT_MEMBERS)
        reduce_in_rounds(call, reduction, send, result, counts);
    else
        reduce_directly(call, reduction, send, result, counts);
}

void site_reduce(struct call *call, const struct reduction *reduction, const void *send, void *result, int count,
                 int head)
{
    const struct kind *kind = &reduction->kind;
    if (!site_shares(call, kind, count)) {
        reduce_by_tree(call, reduction, send, result, count, head);
        return;
    }
    struct shares shares;
    int own = site_own_index(call);
    site_equal_shares(call, &shares, count);
    char *part = call_ok(call) ? elements_memory(call, kind, shares.counts[own]) : NULL;
    if (call_ok(call))
        reduce_parts(call, reduction, send, part, shares.counts);
    if (call_ok(call))
        site_gather(call, kind, part, shares.counts[own], result, shares.counts, shares.starts, head);
}

/* Of little, the first combines all, so that there are fewer messages. */
void site_reduce_scatter(struct call *call, const struct reduction *reduction, const void *send, void *part,
                         const int *counts)
{
    const struct kind *kind = &reduction->kind;
    int members = call->layout->site_members, own = site_own_index(call), total = 0;
    int *starts = call_ints(call, members);
    for (int i = 0; i < members && call_ok(call); i++) {
        starts[i] = total;
        total += counts[i];
    }
    if (!call_ok(call))
        return;
    if ((double)total * (double)kind->size >= (double)SHARE_BYTES * members) {
        reduce_parts(call, reduction, send, part, counts);
        return;
    }
    char *whole = own == 0 ? elements_memory(call, kind, total) : NULL;
    reduce_by_tree(call, reduction, send, whole, total, 0);
    if (call_ok(call))
        site_scatter(call, kind, whole, counts, starts, part, counts[own], 0);
}
