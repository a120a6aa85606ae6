#include "blocks.h"

#include "site.h"

/* Lengths of a site's blocks, and behind them their starts in its row. */
static int *counts_and_starts(struct call *call, const int *length)
{
    const struct layout *layout = call->layout;
    int members = layout->site_members, start = 0;
    int *counts = call_ints(call, 2 * members);
    for (int i = 0; i < members && counts != NULL; i++) {
        counts[i] = length[layout->site_ranks[i]];
        counts[members + i] = start;
        start += counts[i];
    }
    return counts;
}

char *site_up(struct call *call, const int *length, const char *own, int head)
{
    const struct layout *layout = call->layout;
    int is_head = layout->site_ranks[head] == layout->rank;
    int *counts = is_head ? counts_and_starts(call, length) : NULL;
    char *row = is_head && call_ok(call) ? call_memory(call, row_length(length, layout->site_ranks, layout->site_members))
                                         : NULL;
    struct kind bytes = kind_of_bytes();
    if (call_ok(call))
        site_gather(call, &bytes, own, length[layout->rank], row, counts, is_head ? counts + layout->site_members : NULL,
                    head);
    return row;
}

void site_down(struct call *call, const int *length, const char *row, char *own, int head)
{
    const struct layout *layout = call->layout;
    int is_head = layout->site_ranks[head] == layout->rank;
    int *counts = is_head ? counts_and_starts(call, length) : NULL;
    struct kind bytes = kind_of_bytes();
    if (call_ok(call))
        site_scatter(call, &bytes, row, counts, is_head ? counts + layout->site_members : NULL, own, length[layout->rank],
                     head);
}

void site_lengths(struct call *call, int *length, int head)
{
    const struct layout *layout = call->layout;
    int *all = call_ints(call, layout->site_members);
    site_gather_ints(call, &length[layout->rank], 1, all, head);
    for (int i = 0; i < layout->site_members && call_ok(call) && layout->site_ranks[head] == layout->rank; i++)
        length[layout->site_ranks[i]] = all[i];
}
