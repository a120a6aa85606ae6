#include "blocks.h"

#include "../real.h"

/* Lengths and starts of a site's blocks in its row, for MPI's functions. */
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
    if (call_ok(call))
        CALL_DO(call, real.Gatherv(own, length[layout->rank], MPI_BYTE, row, counts,
                                   is_head ? counts + layout->site_members : NULL, MPI_BYTE, head, call->spread->site));
    return row;
}

void site_down(struct call *call, const int *length, const char *row, char *own, int head)
{
    const struct layout *layout = call->layout;
    int is_head = layout->site_ranks[head] == layout->rank;
    int *counts = is_head ? counts_and_starts(call, length) : NULL;
    if (call_ok(call))
        CALL_DO(call, real.Scatterv(row, counts, is_head ? counts + layout->site_members : NULL, MPI_BYTE, own,
                                    length[layout->rank], MPI_BYTE, head, call->spread->site));
}

void site_lengths(struct call *call, int *length, int head)
{
    const struct layout *layout = call->layout;
    int *all = call_ints(call, layout->site_members);
    CALL_DO(call, real.Gather(&length[layout->rank], 1, MPI_INT, all, 1, MPI_INT, head, call->spread->site));
    for (int i = 0; i < layout->site_members && call_ok(call) && layout->site_ranks[head] == layout->rank; i++)
        length[layout->site_ranks[i]] = all[i];
}
