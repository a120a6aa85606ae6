/* MPI_Allgather and MPI_Allgatherv (MPI-4.1, 6.7). */
#include "collectives.h"

#include <limits.h>
#include <string.h>

#include "../alone.h"
#include "../real.h"
#include "blocks.h"
#include "kind.h"
#include "pieces.h"
#include "site.h"
#include "swap.h"
#include "uneven.h"

/* Those who stand for the subsets of the widest tier swap their rows. `whole` gets all. */
static void swap_rows(struct call *call, const int *length, char *row, char *whole)
{
    const struct tier *widest = &call->layout->tier[0];
    char **rows = call_memory(call, (size_t)widest->subsets * sizeof *rows);
    int *arrived = call_ints(call, widest->subsets);
    size_t own_bytes = subset_length(length, widest, widest->mine);
    for (int s = 0; s < widest->subsets && call_ok(call); s++) {
        size_t bytes = subset_length(length, widest, s);
        rows[s] = s == widest->mine ? row : call_memory(call, bytes);
        arrived[s] = s == widest->mine ? -1 : call_receive(call, rows[s], (int)bytes, MPI_BYTE, widest->leaders[s], TAG_ACROSS);
    }
    for (int i = 0; i + 1 < widest->subsets && call_ok(call); i++)
        call_send(call, row, (int)own_bytes, MPI_BYTE, widest->leaders[in_turn(widest->mine, i, widest->subsets)], TAG_ACROSS);
    for (int s = 0; s < widest->subsets && call_ok(call); s++)
        call_wait(call, arrived[s]);
    if (call_ok(call))
        rows_merge(length, widest, rows, whole);
}

static void by_leaders(struct call *call, int *length, const char *own, char *whole, size_t total)
{
    const struct layout *layout = call->layout;
    const struct tier *widest = &layout->tier[0];
    struct tree tree;
    tree_make(call, &tree, layout, NULL, 0, 1, widest->leaders[widest->mine]);
    if (!call_ok(call))
        return;
    char *row = site_up(call, length, own, tree.head);
    if (call_ok(call) && tree.member) {
        row = blocks_up(call, layout, &tree, 1, length, row, 0);
        if (tree.parent >= 0)
            call_wait(call, call_receive(call, whole, (int)total, MPI_BYTE, tree.parent, TAG_DOWN));
        else if (call_ok(call))
            swap_rows(call, length, row, whole);
        for (int c = 0; c < tree.children; c++)
            call_send(call, whole, (int)total, MPI_BYTE, tree.child[c].rank, TAG_DOWN);
    }
    struct kind bytes = kind_of_bytes();
    site_bcast(call, &bytes, whole, (int)total, tree.head);
}

/* Which rank of a site takes another site's rank's block. */
static int taker(const struct lanes *sites, int site, int rank)
{
    long long members = lanes_site_members(sites, site);
    long long others = lanes_site_members(sites, sites->site_of[rank]);
    return sites->ranks[sites->start[site] + (int)(sites->index[rank] * members / others)];
}

/* Each rank sends its block to one of each other site, where all put together what they
 * have taken, in the order of takers and then of ranks. */
void pieces_together(struct call *call, const int *length, const char *own, char *whole, size_t total)
{
    const struct layout *layout = call->layout;
    struct lanes sites;
    int size = layout->size, members = layout->site_members, own_site = layout->site_of[layout->rank], ins = 0, outs = 0;
    lanes_make(call, &sites, 1);
    char *lined = call_memory(call, total);
    struct flow *in = call_memory(call, (size_t)size * sizeof *in), *out = call_memory(call, (size_t)layout->sites * sizeof *out);
    int *counts = call_ints(call, members), *starts = call_ints(call, members), *next = call_ints(call, members);
    if (!call_ok(call))
        return;
    memset(counts, 0, (size_t)members * sizeof *counts);
    for (int r = 0; r < size; r++)
        counts[sites.index[taker(&sites, own_site, r)]] += length[r];
    for (int i = 0, start = 0; i < members; i++) {
        starts[i] = next[i] = start;
        start += counts[i];
    }
    for (int r = 0; r < size; r++) {
        int at = sites.index[taker(&sites, own_site, r)];
        if (r == layout->rank)
            memcpy(lined + next[at], own, (size_t)length[r]);
        else if (layout->site_ranks[at] == layout->rank)
            in[ins++] = (struct flow){ r, lined + next[at], length[r] };
        next[at] += length[r];
    }
    for (; outs + 1 < layout->sites; outs++) {
        int site = in_turn(own_site, outs, layout->sites);
        out[outs] = (struct flow){ taker(&sites, site, layout->rank), (char *)own, length[layout->rank] };
    }
    struct kind bytes = kind_of_bytes();
    struct swap swap;
    swap_begin(call, &swap, &bytes, out, outs, in, ins, total / (size_t)size);
    while (swap_next(call, &swap) >= 0)
        ;
    call_wait_all(call);
    site_allgather(call, &bytes, lined, counts, starts);
    memcpy(next, starts, (size_t)members * sizeof *next);
    for (int r = 0; r < size && call_ok(call); r++) {
        int at = sites.index[taker(&sites, own_site, r)];
        memcpy(whole, lined + next[at], (size_t)length[r]);
        next[at] += length[r];
        whole += length[r];
    }
}

/* The blocks of all ranks, of which length[] are the bytes, in rank order. */
static void allgather(struct call *call, int *length, const char *own, char *whole, size_t total)
{
    if (call->algorithm == LANES)
        pieces_together(call, length, own, whole, total);
    else
        by_leaders(call, length, own, whole, total);
}

int coll_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm)
{
    struct call call;
    struct kind kind, own_kind;
    if (!call_begin(&call, OP_ALLGATHER, comm) || !kind_of(&kind, recv, recv_count, recv_type) ||
        (send != MPI_IN_PLACE && !kind_of(&own_kind, send, send_count, send_type)))
        goto native;
    int rank = call.layout->rank, size = call.layout->size;
    void *place = element(&kind, recv, (long long)rank * recv_count);
    if (is_equal(send, send_count, send_type, place, recv_count, recv_type) &&
        REFUSED(real.Allgather(send, send_count, send_type, place, recv_count, recv_type, alone())))
        goto native;
    size_t bytes = (size_t)recv_count * kind.size, total = bytes * (size_t)size;
    if (!call_takes(&call, bytes, total, 1))
        goto native;
    int *length = call_ints(&call, size);
    for (int r = 0; r < size && call_ok(&call); r++)
        length[r] = (int)bytes;
    char *whole = kind.plain ? recv : call_memory(&call, total), *own = NULL;
    if (call_ok(&call))
        own = send == MPI_IN_PLACE ? stream_of(&call, &kind, place, recv_count)
                                   : stream_of(&call, &own_kind, send, send_count);
    if (call_ok(&call))
        allgather(&call, length, own, whole, total);
    for (int r = 0; r < size && !kind.plain; r++)
        if (r != rank || send != MPI_IN_PLACE)
            stream_read(&call, &kind, whole + (size_t)r * bytes, element(&kind, recv, (long long)r * recv_count), recv_count);
    return call_end(&call);
native:
    return real.Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
}

/* Bytes of all blocks; more than an int counts are not this library's. */
static size_t total_bytes(const int *counts, size_t element_bytes, int size)
{
    size_t total = 0;
    for (int r = 0; r < size; r++)
        total += (size_t)counts[r] * element_bytes;
    return total;
}

int coll_Allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *recv_counts,
                    const int *displs, MPI_Datatype recv_type, MPI_Comm comm)
{
    struct call call;
    struct kind kind, own_kind;
    if (!call_begin(&call, OP_ALLGATHER, comm) ||
        uneven_wrong(recv_counts, displs, call.layout->size) || !kind_of_type(&kind, recv_type) ||
        (send != MPI_IN_PLACE && !kind_of(&own_kind, send, send_count, send_type)))
        goto native;
    int rank = call.layout->rank, size = call.layout->size;
    void *place = element(&kind, recv, displs[rank]);
    if (is_equal(send, send_count, send_type, place, recv_counts[rank], recv_type) &&
        REFUSED(real.Allgatherv(send, send_count, send_type, place, &send_count, (int[]){0}, recv_type, alone())))
        goto native;
    size_t total = total_bytes(recv_counts, kind.size, size);
    /* The mean of what a rank contributes, rounded up, so that it is 0 for nothing only. */
    if (!call_takes(&call, (total + (size_t)size - 1) / (size_t)size, total, 1))
        goto native;
    int *length = call_ints(&call, size);
    for (int r = 0; r < size && call_ok(&call); r++)
        length[r] = (int)((size_t)recv_counts[r] * kind.size);
    char *whole = call_memory(&call, total), *own = NULL;
    if (call_ok(&call))
        own = send == MPI_IN_PLACE ? stream_of(&call, &kind, place, recv_counts[rank])
                                   : stream_of(&call, &own_kind, send, send_count);
    if (call_ok(&call))
        allgather(&call, length, own, whole, total);
    for (int r = 0; r < size && call_ok(&call); r++) {
        if (r != rank || send != MPI_IN_PLACE)
            stream_read(&call, &kind, whole, element(&kind, recv, displs[r]), recv_counts[r]);
        whole += length[r];
    }
    return call_end(&call);
native:
    return real.Allgatherv(send, send_count, send_type, recv, recv_counts, displs, recv_type, comm);
}
