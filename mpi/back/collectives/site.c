#include "site.h"

#include "../cost.h"

/* The least share of a rank for which a vector is worth being cut. */
#define SHARE_BYTES 4096

/* Who passes on to whom within the site: a binomial tree. The ranks from a child on, as many as its
 * distance, are those that it stands for. */
struct branch {
    int parent;         /* index, or -1 at the head */
    int children;
    int child[32];      /* the nearest first */
};

static int own_index(const struct call *call)
{
    return site_index(call->layout, call->layout->rank);
}

static struct branch branch_of(const struct call *call, int head)
{
    int members = call->layout->site_members, from_head = (own_index(call) - head + members) % members;
    struct branch branch = { .parent = -1 };
    for (int distance = 1; distance < members; distance *= 2) {
        if (from_head & distance) {
            branch.parent = (from_head - distance + head) % members;
            break;
        }
        if (from_head + distance < members)
            branch.child[branch.children++] = (from_head + distance + head) % members;
    }
    return branch;
}

static int send_to(struct call *call, const struct kind *kind, const void *buffer, int count, int index)
{
    return call_send(call, buffer, count, kind->type, call->layout->site_ranks[index], TAG_SITE);
}

static int receive_from(struct call *call, const struct kind *kind, void *buffer, int count, int index)
{
    return call_receive(call, buffer, count, kind->type, call->layout->site_ranks[index], TAG_SITE);
}

void site_arrive(struct call *call, int head)
{
    struct kind nothing = kind_of_bytes();
    struct branch branch = branch_of(call, head);
    int arrived[32];
    for (int c = 0; c < branch.children; c++)
        arrived[c] = receive_from(call, &nothing, NULL, 0, branch.child[c]);
    for (int c = 0; c < branch.children; c++)
        call_wait(call, arrived[c]);
    if (branch.parent >= 0)
        send_to(call, &nothing, NULL, 0, branch.parent);
}

/* The tree downwards: the farthest child first, since it has the most to pass on. */
static void pass_on(struct call *call, const struct kind *kind, void *buffer, int count, int head)
{
    struct branch branch = branch_of(call, head);
    if (branch.parent >= 0)
        call_wait(call, receive_from(call, kind, buffer, count, branch.parent));
    for (int c = branch.children - 1; c >= 0; c--)
        send_to(call, kind, buffer, count, branch.child[c]);
}

void site_leave(struct call *call, int head)
{
    struct kind nothing = kind_of_bytes();
    pass_on(call, &nothing, NULL, 0, head);
}

/* Whether all are to work on a share each: the whole then goes twice over a rank's link, and not once
 * for each step of a tree. */
static int is_shared(const struct call *call, const struct kind *kind, int count)
{
    double bytes = (double)count * (double)kind->size;
    return call->layout->site_members > 4 && bytes > EAGER_BYTES && bytes >= (double)SHARE_BYTES * call->layout->site_members;
}

static void equal_shares(struct call *call, struct shares *shares, int count)
{
    int members = call->layout->site_members;
    shares->counts = call_ints(call, members);
    shares->starts = call_ints(call, members);
    for (int i = 0; i < members && call_ok(call); i++) {
        shares->starts[i] = (int)((long long)count * i / members);
        shares->counts[i] = (int)((long long)count * (i + 1) / members) - shares->starts[i];
    }
}

/* Parts of a vector from one index on, as two ranges: behind the last comes the first. */
struct range {
    int start, count;   /* elements */
};

static void ranges_of(struct range range[2], const int *counts, const int *starts, int members, int first, int parts)
{
    range[0] = (struct range){ .start = starts[first] };
    range[1] = (struct range){ .start = starts[0] };
    for (int i = 0; i < parts; i++)
        range[first + i >= members].count += counts[(first + i) % members];
}

/* `complete`: one who has all parts already, or -1.
 *
 * Source: J. Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport
 * Message-Passing Systems", IEEE TPDS 8 (1997), section 3. */
static void bring_together(struct call *call, const struct kind *kind, void *buffer, const int *counts, const int *starts,
                           int complete)
{
    int members = call->layout->site_members, own = own_index(call);
    for (int known = 1; known < members && call_ok(call); known *= 2) {
        int parts = known < members - known ? known : members - known, arrived[2] = { -1, -1 };
        int to = (own - known + members) % members, from = (own + known) % members;
        struct range out[2], in[2];
        ranges_of(out, counts, starts, members, own, parts);
        ranges_of(in, counts, starts, members, from, parts);
        for (int i = 0; i < 2; i++) {
            if (own != complete && in[i].count > 0)
                arrived[i] = receive_from(call, kind, element(kind, buffer, in[i].start), in[i].count, from);
            if (to != complete && out[i].count > 0)
                send_to(call, kind, element(kind, buffer, out[i].start), out[i].count, to);
        }
        call_wait(call, arrived[0]);
        call_wait(call, arrived[1]);
    }
}

void site_bcast(struct call *call, const struct kind *kind, void *buffer, int count, int head)
{
    if (!is_shared(call, kind, count)) {
        pass_on(call, kind, buffer, count, head);
        return;
    }
    struct shares shares;
    int own = own_index(call);
    equal_shares(call, &shares, count);
    if (!call_ok(call))
        return;
    site_scatter(call, kind, buffer, shares.counts, shares.starts, element(kind, buffer, shares.starts[own]),
                 shares.counts[own], head);
    bring_together(call, kind, buffer, shares.counts, shares.starts, head);
}

void site_gather(struct call *call, const struct kind *kind, const void *own, int own_count, void *whole,
                 const int *counts, const int *starts, int head)
{
    int members = call->layout->site_members, index = own_index(call);
    if (index != head) {
        if (own_count > 0)
            call_wait(call, send_to(call, kind, own, own_count, head));
        return;
    }
    int *arrived = call_ints(call, members);
    for (int i = 0; i < members && call_ok(call); i++)
        arrived[i] = i == head || counts[i] == 0
                         ? -1
                         : receive_from(call, kind, element(kind, whole, starts[i]), counts[i], i);
    elements_copy(call, kind, own, element(kind, whole, starts[head]), own_count);
    for (int i = 0; i < members && call_ok(call); i++)
        call_wait(call, arrived[i]);
}

void site_scatter(struct call *call, const struct kind *kind, const void *whole, const int *counts, const int *starts,
                  void *own, int own_count, int head)
{
    int index = own_index(call);
    if (index != head) {
        if (own_count > 0)
            call_wait(call, receive_from(call, kind, own, own_count, head));
        return;
    }
    for (int i = 0; i < call->layout->site_members && call_ok(call); i++)
        if (i != head && counts[i] > 0)
            send_to(call, kind, element(kind, whole, starts[i]), counts[i], i);
    elements_copy(call, kind, element(kind, whole, starts[head]), own, own_count);
}

void site_gather_ints(struct call *call, const int *own, int count, int *all, int head)
{
    struct kind ints;
    int members = call->layout->site_members;
    int *counts = call_ints(call, members), *starts = call_ints(call, members);
    if (!call_ok(call) || !kind_of_type(&ints, MPI_INT))
        return;
    for (int i = 0; i < members; i++) {
        counts[i] = count;
        starts[i] = i * count;
    }
    site_gather(call, &ints, own, count, all, counts, starts, head);
}

void site_allgather(struct call *call, const struct kind *kind, void *buffer, const int *counts, const int *starts)
{
    bring_together(call, kind, buffer, counts, starts, -1);
}

/* The tree upwards. Its parts are in the order of ranks if the head is the first. Returns the sum at the
 * head. */
static const char *sum_up(struct call *call, const struct reduction *reduction, const void *send, int count, int head)
{
    struct branch branch = branch_of(call, head);
    char *part[33];
    int ranks[33], arrived[33];
    for (int c = 0; c < branch.children; c++)
        ranks[c + 1] = call->layout->site_ranks[branch.child[c]];
    ranks[0] = call->layout->rank;
    /* What fold() writes to is the last part, which is this rank's own only where it is alone. */
    fold_receive(call, reduction, ranks, branch.children + 1, 0, (char *)send, count, TAG_SITE, part, arrived);
    char *sum = fold(call, reduction, part, arrived, branch.children + 1, count);
    if (branch.parent >= 0 && call_ok(call))
        call_wait(call, send_to(call, &reduction->kind, sum, count, branch.parent));
    return sum;
}

static void reduce_by_tree(struct call *call, const struct reduction *reduction, const void *send, void *result, int count,
                           int head)
{
    const struct kind *kind = &reduction->kind;
    int top = reduction->commutative ? head : 0, own = own_index(call);
    const char *sum = sum_up(call, reduction, send, count, top);
    if (top == head && own == head)
        elements_copy(call, kind, sum, result, count);
    else if (own == top && top != head)
        call_wait(call, send_to(call, kind, sum, count, head));
    else if (own == head)
        call_wait(call, receive_from(call, kind, result, count, top));
}

/* Each combines its part, directly from all others. */
static void reduce_parts(struct call *call, const struct reduction *reduction, const void *send, void *result,
                         const int *counts)
{
    const struct kind *kind = &reduction->kind;
    int members = call->layout->site_members, own = own_index(call), start = 0, own_start = 0;
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
            send_to(call, kind, element(kind, send, start), counts[i], i);
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

void site_reduce(struct call *call, const struct reduction *reduction, const void *send, void *result, int count,
                 int head)
{
    const struct kind *kind = &reduction->kind;
    if (!is_shared(call, kind, count)) {
        reduce_by_tree(call, reduction, send, result, count, head);
        return;
    }
    struct shares shares;
    int own = own_index(call);
    equal_shares(call, &shares, count);
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
    int members = call->layout->site_members, own = own_index(call), total = 0;
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
