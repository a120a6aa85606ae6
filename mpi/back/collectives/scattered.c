/* SCATTERED: every rank has a piece of the whole, and all put the pieces together. Between
 * sites the pieces travel directly, so that a link carries the data twice at most, however many
 * sites there are: the bound of reduce-scatter and allgather, one after the other.
 *
 * Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; for
 * Bcast, M. Barnett et al., "Interprocessor Collective Communication Library", SHPCC 1994. */
#include "carried.h"

#include "blocks.h"
#include "pieces.h"

/* Where rank r's piece of the whole begins. */
static int piece_start(const struct call *call, int count, int rank)
{
    return (int)((long long)count * rank / call->layout->size);
}

/* The length of each rank's piece, in units of so many bytes. */
static int *piece_lengths(struct call *call, int count, size_t unit)
{
    int *lengths = call_ints(call, call->layout->size);
    for (int r = 0; r < call->layout->size && call_ok(call); r++)
        lengths[r] = (piece_start(call, count, r + 1) - piece_start(call, count, r)) * (int)unit;
    return lengths;
}

/* The root puts the pieces together elsewhere: nobody may write into its buffer. */
void scattered_bcast(struct call *call, char *stream, int length, int root)
{
    struct tree tree;
    const struct layout *layout = call->layout;
    int *lengths = piece_lengths(call, length, 1);
    tree_make(call, &tree, layout, NULL, 0, 0, root);
    char *row = call_ok(call) ? blocks_down(call, layout, &tree, 0, lengths, stream, 0) : NULL;
    char *own = call_ok(call) ? call_memory(call, (size_t)lengths[layout->rank]) : NULL;
    if (call_ok(call))
        site_down(call, lengths, row, own, tree.head);
    char *whole = layout->rank == root ? call_memory(call, (size_t)length) : stream;
    if (call_ok(call))
        pieces_together(call, lengths, own, whole, (size_t)length);
}

/* The calling rank's piece of the reduction, as a stream. */
static char *reduced(struct call *call, const struct reduction *reduction, const void *send, int count)
{
    const struct kind *kind = &reduction->kind;
    int *counts = piece_lengths(call, count, 1);
    int own = call_ok(call) ? counts[call->layout->rank] : 0;
    char *piece = elements_memory(call, kind, own);
    if (call_ok(call))
        pieces_reduce(call, reduction, counts, send, piece);
    return call_ok(call) ? stream_of(call, kind, piece, own) : NULL;
}

void scattered_reduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count,
                      int root)
{
    struct tree tree;
    char *own = reduced(call, reduction, send, count);
    int *lengths = piece_lengths(call, count, reduction->kind.size);
    tree_make(call, &tree, call->layout, NULL, 0, 0, root);
    char *row = call_ok(call) ? site_up(call, lengths, own, tree.head) : NULL;
    if (call_ok(call))
        row = blocks_up(call, call->layout, &tree, 0, lengths, row, 0);
    if (call->layout->rank == root)
        stream_read(call, &reduction->kind, row, recv, count);
}

void scattered_allreduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count)
{
    const struct kind *kind = &reduction->kind;
    char *own = reduced(call, reduction, send, count);
    int *lengths = piece_lengths(call, count, kind->size);
    char *whole = call_ok(call) ? stream_room(call, kind, recv, count) : NULL;
    if (call_ok(call))
        pieces_together(call, lengths, own, whole, (size_t)count * kind->size);
    stream_read(call, kind, whole, recv, count);
}
