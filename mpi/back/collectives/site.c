#include "site_parts.h"

#include "../cost.h"

int site_own_index(const struct call *call)
{
    return site_index(call->layout, call->layout->rank);
}

struct branch site_branch(const struct call *call, int head)
{
    int members = call->layout->site_members, from_head = (site_own_index(call) - head + members) % members;
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

int site_send(struct call *call, const struct kind *kind, const void *buffer, int count, int index)
{
    return call_send(call, buffer, count, kind->type, call->layout->site_ranks[index], TAG_SITE);
}

int site_receive(struct call *call, const struct kind *kind, void *buffer, int count, int index)
{
    return call_receive(call, buffer, count, kind->type, call->layout->site_ranks[index], TAG_SITE);
}

void site_arrive(struct call *call, int head)
{
    struct kind nothing = kind_of_bytes();
    struct branch branch = site_branch(call, head);
    int arrived[32];
    for (int c = 0; c < branch.children; c++)
        arrived[c] = site_receive(call, &nothing, NULL, 0, branch.child[c]);
    for (int c = 0; c < branch.children; c++)
        call_wait(call, arrived[c]);
    if (branch.parent >= 0)
        site_send(call, &nothing, NULL, 0, branch.parent);
}

/* The tree downwards: the farthest child first, since it has the most to pass on. */
static void pass_on(struct call *call, const struct kind *kind, void *buffer, int count, int head)
{
    struct branch branch = site_branch(call, head);
    if (branch.parent >= 0)
        call_wait(call, site_receive(call, kind, buffer, count, branch.parent));
    for (int c = branch.children - 1; c >= 0; c--)
        site_send(call, kind, buffer, count, branch.child[c]);
}

void site_leave(struct call *call, int head)
{
    struct kind nothing = kind_of_bytes();
    pass_on(call, &nothing, NULL, 0, head);
}

int site_shares(const struct call *call, const struct kind *kind, int count)
{
    double bytes = (double)count * (double)kind->size;
    return call->layout->site_members > 4 && bytes > EAGER_BYTES && bytes >= (double)SHARE_BYTES * call->layout->site_members;
}

void site_equal_shares(struct call *call, struct shares *shares, int count)
{
    int members = call->layout->site_members;
    shares->counts = call_ints(call, members);
    shares->starts = call_ints(call, members);
    for (int i = 0; i < members && call_ok(call); i++) {
        shares->starts[i] = (int)((long long)count * i / members);
        shares->counts[i] = (int)((long long)count * (i + 1) / members) - shares->starts[i];
    }
}

void site_ranges(struct range range[2], const int *counts, const int *starts, int members, int first, int parts)
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
    int members = call->layout->site_members, own = site_own_index(call);
    for (int known = 1; known < members && call_ok(call); known *= 2) {
        int parts = known < members - known ? known : members - known, arrived[2] = { -1, -1 };
        int to = (own - known + members) % members, from = (own + known) % members;
        struct range out[2], in[2];
        site_ranges(out, counts, starts, members, own, parts);
        site_ranges(in, counts, starts, members, from, parts);
        for (int i = 0; i < 2; i++) {
            if (own != complete && in[i].count > 0)
                arrived[i] = site_receive(call, kind, element(kind, buffer, in[i].start), in[i].count, from);
            if (to != complete && out[i].count > 0)
                site_send(call, kind, element(kind, buffer, out[i].start), out[i].count, to);
        }
        call_wait(call, arrived[0]);
        call_wait(call, arrived[1]);
    }
}

void site_bcast(struct call *call, const struct kind *kind, void *buffer, int count, int head)
{
    if (!site_shares(call, kind, count)) {
        pass_on(call, kind, buffer, count, head);
        return;
    }
    struct shares shares;
    int own = site_own_index(call);
    site_equal_shares(call, &shares, count);
    if (!call_ok(call))
        return;
    site_scatter(call, kind, buffer, shares.counts, shares.starts, element(kind, buffer, shares.starts[own]),
                 shares.counts[own], head);
    bring_together(call, kind, buffer, shares.counts, shares.starts, head);
}

void site_gather(struct call *call, const struct kind *kind, const void *own, int own_count, void *whole,
                 const int *counts, const int *starts, int head)
{
    int members = call->layout->site_members, index = site_own_index(call);
    if (index != head) {
        if (own_count > 0)
            call_wait(call, site_send(call, kind, own, own_count, head));
        return;
    }
    int *arrived = call_ints(call, members);
    for (int i = 0; i < members && call_ok(call); i++)
        arrived[i] = i == head || counts[i] == 0
                         ? -1
                         : site_receive(call, kind, element(kind, whole, starts[i]), counts[i], i);
    elements_copy(call, kind, own, element(kind, whole, starts[head]), own_count);
    for (int i = 0; i < members && call_ok(call); i++)
        call_wait(call, arrived[i]);
}

void site_scatter(struct call *call, const struct kind *kind, const void *whole, const int *counts, const int *starts,
                  void *own, int own_count, int head)
{
    int index = site_own_index(call);
    if (index != head) {
        if (own_count > 0)
            call_wait(call, site_receive(call, kind, own, own_count, head));
        return;
    }
    for (int i = 0; i < call->layout->site_members && call_ok(call); i++)
        if (i != head && counts[i] > 0)
            site_send(call, kind, element(kind, whole, starts[i]), counts[i], i);
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
