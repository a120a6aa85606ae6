/* MPI_Reduce_scatter and MPI_Reduce_scatter_block (MPI-4.1, 6.10). All sites exchange with
 * each other directly, so that what is for a site crosses once. */
#include "collectives.h"

#include <limits.h>

#include "../alone.h"
#include "../real.h"
#include "fold.h"
#include "pieces.h"
#include "site.h"
#include "swap.h"
#include "tree.h"

/* The vector, of which each rank gets a piece. */
struct pieces {
    const int *count;   /* [size] elements */
    int *start;         /* [size] */
    int total;
};

static void pieces_make(struct call *call, struct pieces *pieces, const int *count)
{
    long long total = 0;
    pieces->count = count;
    pieces->start = call_ints(call, call->layout->size);
    if (!call_ok(call))
        return;
    for (int r = 0; r < call->layout->size; r++) {
        pieces->start[r] = (int)total;
        total += count[r];
    }
    pieces->total = (int)total;
}

/* Copies the pieces of some ranks into one row. Returns their elements. */
static int line_up(struct call *call, const struct reduction *reduction, const struct pieces *pieces, const void *from,
                   const int *ranks, int count, char *to)
{
    int lined = 0;
    for (int i = 0; i < count; i++) {
        int rank = ranks[i];
        elements_copy(call, &reduction->kind, element(&reduction->kind, from, pieces->start[rank]),
                      element(&reduction->kind, to, lined), pieces->count[rank]);
        lined += pieces->count[rank];
    }
    return lined;
}

static int elements_of(const struct pieces *pieces, const int *ranks, int count)
{
    int elements = 0;
    for (int i = 0; i < count; i++)
        elements += pieces->count[ranks[i]];
    return elements;
}

/* The leader of a site sends each other site's pieces to its leader, and combines those of
 * its own. Returns them in a row. */
static char *cross(struct call *call, const struct reduction *reduction, const struct lanes *sites,
                   const struct pieces *pieces, char *whole)
{
    const struct layout *layout = call->layout;
    const struct kind *kind = &reduction->kind;
    int own = layout->site_of[layout->rank];
    int elements = elements_of(pieces, layout->site_ranks, layout->site_members);
    char **part = call_memory(call, (size_t)layout->sites * sizeof *part);
    int *arrived = call_ints(call, layout->sites), *leader = call_ints(call, layout->sites);
    char *mine = elements_memory(call, kind, elements), *rows = elements_memory(call, kind, pieces->total);
    for (int s = 0; s < layout->sites && call_ok(call); s++)
        leader[s] = sites->ranks[sites->start[s]];
    fold_receive(call, reduction, leader, layout->sites, own, mine, elements, TAG_ACROSS, part, arrived);
    int row = 0;
    for (int i = 0; i < layout->sites && call_ok(call); i++) {
        int s = in_turn(own, i, layout->sites);
        char *to = s == own ? mine : element(kind, rows, row);
        int lined = line_up(call, reduction, pieces, whole, &sites->ranks[sites->start[s]],
                            lanes_site_members(sites, s), to);
        if (s != own)
            call_send(call, to, lined, kind->type, leader[s], TAG_ACROSS);
        row += lined;
    }
    return fold(call, reduction, part, arrived, layout->sites, elements);
}

static void by_leaders(struct call *call, const struct reduction *reduction, const struct pieces *pieces,
                       const void *send, void *recv)
{
    struct lanes sites;
    const struct layout *layout = call->layout;
    const struct kind *kind = &reduction->kind;
    int is_leader = layout->site_ranks[0] == layout->rank;
    lanes_make(call, &sites, 1);
    char *whole = is_leader ? elements_memory(call, kind, pieces->total) : NULL, *row = NULL;
    int *count = call_ints(call, layout->site_members), *start = call_ints(call, layout->site_members);
    site_reduce(call, reduction, send, whole, pieces->total, 0);
    if (is_leader && call_ok(call))
        row = cross(call, reduction, &sites, pieces, whole);
    for (int i = 0, lined = 0; i < layout->site_members && call_ok(call); i++) {
        count[i] = pieces->count[layout->site_ranks[i]];
        start[i] = lined;
        lined += count[i];
    }
    if (call_ok(call))
        site_scatter(call, kind, row, count, start, recv, pieces->count[layout->rank], 0);
}

/* The rank of a site of so many members that takes care of another site's rank. */
static int carer(int index, int members, int other_members)
{
    return (int)((long long)index * members / other_members);
}

/* Who is taken care of at this site by each of its ranks, one after the other, the next site's first: order[size],
 * from first[i] to before first[i + 1] by rank i, and how many elements that is, count[i]. */
static void share_out(const struct layout *layout, const struct lanes *sites, const struct pieces *pieces, int *order,
                      int *first, int *count)
{
    int members = layout->site_members, own = layout->site_of[layout->rank], placed = 0;
    for (int i = 0; i < members; i++) {
        first[i] = placed;
        count[i] = 0;
        for (int number = 0; number < layout->sites; number++) {
            int s = in_turn(own, number, layout->sites);
            int others = lanes_site_members(sites, s);
            /* Those with carer() == i follow one another. */
            int j = (int)(((long long)i * others + members - 1) / members);
            for (; j < others && carer(j, members, others) == i; j++) {
                order[placed] = sites->ranks[sites->start[s] + j];
                count[i] += pieces->count[order[placed++]];
            }
        }
    }
    first[members] = placed;
}

/* What the calling rank receives its piece from, and to whom it sends those that it takes care of. */
struct flows {
    struct flow *in, *out;
    int ins, outs;
    char **part;    /* [sites] the piece's */
};

static void flows_make(struct call *call, struct flows *flows, const struct reduction *reduction, const struct lanes *sites,
                       const struct pieces *pieces, const int *to, int count, char *mine)
{
    const struct layout *layout = call->layout;
    int rank = layout->rank, own_site = layout->site_of[rank], elements = pieces->count[rank];
    *flows = (struct flows){
        .in = call_memory(call, (size_t)layout->sites * sizeof *flows->in),
        .out = call_memory(call, (size_t)layout->size * sizeof *flows->out),
        .part = call_memory(call, (size_t)layout->sites * sizeof *flows->part),
    };
    for (int s = 0; s < layout->sites && call_ok(call); s++) {
        if (s == own_site)
            continue;
        int index = carer(site_index(layout, rank), lanes_site_members(sites, s), layout->site_members);
        flows->part[s] = elements_memory(call, &reduction->kind, elements);
        flows->in[flows->ins++] = (struct flow){ sites->ranks[sites->start[s] + index], flows->part[s], elements };
    }
    for (int i = 0, offset = 0; i < count && call_ok(call); i++) {
        char *piece = element(&reduction->kind, mine, offset);
        if (to[i] == rank)
            flows->part[own_site] = piece;
        else
            flows->out[flows->outs++] = (struct flow){ to[i], piece, pieces->count[to[i]] };
        offset += pieces->count[to[i]];
    }
}

/* Combines the parts of all sites, block by block as they come. */
static void swap_and_fold(struct call *call, const struct reduction *reduction, const struct flows *flows, int elements,
                          size_t bytes, void *recv)
{
    struct swap swap;
    const struct kind *kind = &reduction->kind;
    int sites = call->layout->sites, *there = call_ints(call, sites);
    char **place = call_memory(call, (size_t)sites * sizeof *place);
    if (!call_ok(call))
        return;
    for (int s = 0; s < sites; s++)
        there[s] = -1;
    swap_begin(call, &swap, kind, flows->out, flows->outs, flows->in, flows->ins, bytes);
    for (int b; (b = swap_next(call, &swap)) >= 0;) {
        int start = swap_start(&swap, b, elements), count = swap_start(&swap, b + 1, elements) - start;
        for (int s = 0; s < sites; s++)
            place[s] = element(kind, flows->part[s], start);
        if (count > 0)
            elements_copy(call, kind, fold(call, reduction, place, there, sites, count), element(kind, recv, start), count);
    }
}

/* Each rank combines its site's parts for some ranks of every site, and sends each of them
 * its part directly. */
static void in_lanes(struct call *call, const struct reduction *reduction, const struct pieces *pieces,
                     const void *send, void *recv)
{
    struct lanes sites;
    struct flows flows;
    const struct layout *layout = call->layout;
    const struct kind *kind = &reduction->kind;
    int own = site_index(layout, layout->rank), members = layout->site_members;
    lanes_make(call, &sites, 1);
    int *order = call_ints(call, layout->size), *first = call_ints(call, members + 1), *count = call_ints(call, members);
    if (!call_ok(call))
        return;
    share_out(layout, &sites, pieces, order, first, count);
    char *rows = elements_memory(call, kind, pieces->total), *mine = elements_memory(call, kind, count[own]);
    line_up(call, reduction, pieces, send, order, layout->size, rows);
    if (call_ok(call))
        site_reduce_scatter(call, reduction, rows, mine, count);
    if (call_ok(call))
        flows_make(call, &flows, reduction, &sites, pieces, order + first[own], first[own + 1] - first[own], mine);
    if (call_ok(call))
        swap_and_fold(call, reduction, &flows, pieces->count[layout->rank],
                      (size_t)pieces->total / (size_t)layout->size * kind->size, recv);
}

void pieces_reduce(struct call *call, const struct reduction *reduction, const int *counts, const void *send,
                   void *recv)
{
    struct pieces pieces;
    pieces_make(call, &pieces, counts);
    if (call_ok(call))
        in_lanes(call, reduction, &pieces, send, recv);
}

static int has_negative(const int *count, int size)
{
    for (int r = 0; r < size; r++)
        if (count[r] < 0)
            return 1;
    return 0;
}

static long long sum(const int *count, int size)
{
    long long total = 0;
    for (int r = 0; r < size; r++)
        total += count[r];
    return total;
}

/* -1: the MPI's own; else what the collective returns. */
static int reduce_scatter(struct call *call, const void *send, void *recv, const int *counts, MPI_Datatype datatype,
                          MPI_Op op)
{
    struct reduction reduction;
    struct pieces pieces;
    const void *input = send == MPI_IN_PLACE ? recv : send;
    int size = call->layout->size;
    if (has_negative(counts, size))
        return -1;
    size_t total = (size_t)sum(counts, size);
    if (!reduction_of(&reduction, input, total > 0, datatype, op))
        return -1;
    size_t bytes = total * reduction.kind.size;
    if (total > INT_MAX || !call_takes(call, bytes, bytes, reduction.commutative))
        return -1;
    pieces_make(call, &pieces, counts);
    if (call_ok(call)) {
        if (call->algorithm == LANES)
            in_lanes(call, &reduction, &pieces, input, recv);
        else
            by_leaders(call, &reduction, &pieces, input, recv);
    }
    return call_end(call);
}

int coll_Reduce_scatter(const void *send, void *recv, const int *recv_counts, MPI_Datatype datatype, MPI_Op op,
                        MPI_Comm comm)
{
    struct call call;
    int code = -1;
    if (call_begin(&call, OP_REDUCE_SCATTER, comm) && recv_counts != NULL &&
        !(send == recv && REFUSED(real.Reduce_scatter(send, recv, recv_counts, datatype, op, alone()))))
        code = reduce_scatter(&call, send, recv, recv_counts, datatype, op);
    return code == -1 ? real.Reduce_scatter(send, recv, recv_counts, datatype, op, comm) : code;
}

int coll_Reduce_scatter_block(const void *send, void *recv, int recv_count, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm)
{
    struct call call;
    int code = -1;
    if (call_begin(&call, OP_REDUCE_SCATTER, comm) && recv_count >= 0 &&
        !(send == recv && REFUSED(real.Reduce_scatter_block(send, recv, recv_count, datatype, op, alone())))) {
        int *counts = call_ints(&call, call.layout->size);
        if (counts == NULL)
            return call_end(&call);
        for (int r = 0; r < call.layout->size; r++)
            counts[r] = recv_count;
        code = reduce_scatter(&call, send, recv, counts, datatype, op);
        if (code == -1)
            call_drop(&call);
    }
    return code == -1 ? real.Reduce_scatter_block(send, recv, recv_count, datatype, op, comm) : code;
}
