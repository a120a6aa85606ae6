#include "blocks.h"

#include <string.h>

#include "../real.h"
#include "pace.h"

size_t row_length(const int *length, const int *ranks, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (size_t)length[ranks[i]];
    return bytes;
}

size_t subset_length(const int *length, const struct tier *tier, int subset)
{
    size_t bytes = 0;
    for (int i = 0; i < tier->members; i++)
        if (tier->subset_of[i] == subset)
            bytes += (size_t)length[tier->ranks[i]];
    return bytes;
}

void rows_merge(const int *length, const struct tier *tier, char *const *subset_row, char *row)
{
    for (int s = 0; s < tier->subsets; s++) {
        const char *from = subset_row[s];
        char *to = row;
        for (int i = 0; i < tier->members; i++) {
            size_t bytes = (size_t)length[tier->ranks[i]];
            if (tier->subset_of[i] == s && bytes > 0) {
                memcpy(to, from, bytes);
                from += bytes;
            }
            to += bytes;
        }
    }
}

void rows_part(const int *length, const struct tier *tier, const char *row, char *const *subset_row)
{
    for (int s = 0; s < tier->subsets; s++) {
        const char *from = row;
        char *to = subset_row[s];
        for (int i = 0; i < tier->members; i++) {
            size_t bytes = (size_t)length[tier->ranks[i]];
            if (tier->subset_of[i] == s && bytes > 0) {
                memcpy(to, from, bytes);
                to += bytes;
            }
            from += bytes;
        }
    }
}

/* The lengths of a subset's ranks as a row of ints, and back. */
static int *lengths_row(struct call *call, const int *length, const struct tier *tier, int subset)
{
    int *row = call_ints(call, tier->counts[subset]), filled = 0;
    for (int i = 0; i < tier->members && row != NULL; i++)
        if (tier->subset_of[i] == subset)
            row[filled++] = length[tier->ranks[i]];
    return row;
}

static void lengths_take(const int *row, int *length, const struct tier *tier, int subset)
{
    for (int i = 0; i < tier->members; i++)
        if (tier->subset_of[i] == subset)
            length[tier->ranks[i]] = *row++;
}

/* A row on its way to the one who collects those of so many others, in blocks. Both ends know alike how it is cut. */
struct row_blocks {
    size_t bytes;
    struct window window;
    int untold;    /* the last blocks, of which the sender hears nothing */
};

static struct row_blocks row_blocks_of(const struct call *call, size_t bytes, int rows)
{
    const struct shape *shape = &call->spread->shape;
    int blocks = crossing_blocks(shape, bytes, rows, rows);
    struct window window = window_make(shape, blocks, (double)bytes * rows / blocks, 1);
    return (struct row_blocks){ bytes, window, window.ahead };
}

static size_t row_start(const struct row_blocks *row, int block)
{
    return (size_t)((unsigned long long)row->bytes * (unsigned)block / (unsigned)row->window.blocks);
}

/* Several who send their rows to one at the same time have only some blocks under way: see window.h. */
static void send_to_collector(struct call *call, const char *bytes, size_t length, int rows, int to)
{
    struct row_blocks row = row_blocks_of(call, length, rows);
    struct pace pace;
    pace_make(call, &pace, row.window);
    int *told = call_ints(call, row.window.blocks);
    for (int b = 0; b < row.window.blocks && call_ok(call); b++)
        told[b] = b + row.untold < row.window.blocks ? call_receive(call, NULL, 0, MPI_BYTE, to, TAG_HEARD) : -1;
    while (call_ok(call) && pace.sent < row.window.blocks) {
        for (; !pace_may_send(&pace) && call_ok(call); pace_hear(&pace))
            call_wait(call, told[pace.heard]);
        size_t start = row_start(&row, pace_send(&pace));
        call_send_bytes(call, bytes + start, row_start(&row, pace.sent) - start, to);
    }
}

static void send_lengths(struct call *call, const int *length, const struct tier *tier, int subset, int to)
{
    int *lengths = lengths_row(call, length, tier, subset);
    call_send(call, lengths, tier->counts[subset], MPI_INT, to, TAG_TREE);
}

/* Learns the lengths of the tier's other subsets from who stands for them. */
static void hear_lengths(struct call *call, const struct tree *tree, const struct layout *layout, int number, int *length)
{
    const struct tier *tier = &layout->tier[number];
    int **row = call_memory(call, (size_t)tree->children * sizeof *row), *arrived = call_ints(call, tree->children);
    for (int c = 0; c < tree->children && call_ok(call); c++) {
        int count = tier->counts[tree->child[c].tier == number ? tree->child[c].subset : 0];
        row[c] = tree->child[c].tier == number ? call_ints(call, count) : NULL;
        arrived[c] = row[c] ? call_receive(call, row[c], count, MPI_INT, tree->child[c].rank, TAG_TREE) : -1;
    }
    for (int c = 0; c < tree->children && call_ok(call); c++) {
        call_wait(call, arrived[c]);
        if (call_ok(call) && row[c] != NULL)
            lengths_take(row[c], length, tier, tree->child[c].subset);
    }
}

/* A row that comes in. */
struct coming {
    struct row_blocks blocks;
    int from, *arrived;    /* [blocks] */
};

static void receive_blocks(struct call *call, struct coming *coming, char *row)
{
    int blocks = coming->blocks.window.blocks;
    coming->arrived = call_ints(call, blocks);
    for (int b = 0; b < blocks && call_ok(call); b++) {
        size_t start = row_start(&coming->blocks, b);
        coming->arrived[b] = call_receive_bytes(call, row + start, row_start(&coming->blocks, b + 1) - start, coming->from);
    }
}

/* Waits for a block, if the row has it, and tells who sends of it, if they wait for that. */
static void take_block(struct call *call, const struct coming *coming, int block)
{
    if (block >= coming->blocks.window.blocks)
        return;
    call_wait(call, coming->arrived[block]);
    if (block + coming->blocks.untold < coming->blocks.window.blocks)
        call_send(call, NULL, 0, MPI_BYTE, coming->from, TAG_HEARD);
}

/* The rows of a tier's other subsets come in; the own one is there. Returns the set's row. */
static char *collect(struct call *call, const struct tree *tree, const struct layout *layout, int number,
                     const int *length, char *own_row)
{
    const struct tier *tier = &layout->tier[number];
    char **rows = call_memory(call, (size_t)tier->subsets * sizeof *rows);
    struct coming *coming = call_memory(call, (size_t)tier->subsets * sizeof *coming);
    int count = 0, most = 0;
    for (int s = 0; s < tier->subsets && call_ok(call); s++)
        rows[s] = own_row;
    for (int c = 0; c < tree->children && call_ok(call); c++) {
        if (tree->child[c].tier != number)
            continue;
        int s = tree->child[c].subset;
        size_t bytes = subset_length(length, tier, s);
        rows[s] = call_memory(call, bytes);
        coming[count] = (struct coming){ row_blocks_of(call, bytes, tier->subsets - 1), tree->child[c].rank, NULL };
        if (call_ok(call))
            receive_blocks(call, &coming[count], rows[s]);
        most = coming[count].blocks.window.blocks > most ? coming[count].blocks.window.blocks : most;
        count++;
    }
    for (int b = 0; b < most; b++)
        for (int i = 0; i < count && call_ok(call); i++)
            take_block(call, &coming[i], b);
    char *row = call_memory(call, row_length(length, tier->ranks, tier->members));
    if (call_ok(call))
        rows_merge(length, tier, rows, row);
    return row;
}

char *blocks_up(struct call *call, const struct layout *layout, const struct tree *tree, int first_tier, int *length,
                char *row, int told)
{
    if (!tree->member)
        return NULL;
    for (int t = layout->tiers - 1; t >= first_tier && call_ok(call); t--) {
        if (t == tree->parent_tier) {
            const struct tier *tier = &layout->tier[t];
            if (told)
                send_lengths(call, length, tier, tier->mine, tree->parent);
            send_to_collector(call, row, subset_length(length, tier, tier->mine), tier->subsets - 1, tree->parent);
            return NULL;
        }
        if (told)
            hear_lengths(call, tree, layout, t, length);
        row = call_ok(call) ? collect(call, tree, layout, t, length, row) : NULL;
    }
    return row;
}

/* The root's part of a tier: sends the others their rows. Returns the own subset's. */
static char *distribute(struct call *call, const struct tree *tree, const struct layout *layout, int number,
                        const int *length, const char *row, int told)
{
    const struct tier *tier = &layout->tier[number];
    char **rows = call_memory(call, (size_t)tier->subsets * sizeof *rows);
    for (int s = 0; s < tier->subsets && call_ok(call); s++)
        rows[s] = call_memory(call, subset_length(length, tier, s));
    if (!call_ok(call))
        return NULL;
    rows_part(length, tier, row, rows);
    for (int c = 0; c < tree->children; c++) {
        if (tree->child[c].tier != number)
            continue;
        int subset = tree->child[c].subset, to = tree->child[c].rank;
        if (told)
            send_lengths(call, length, tier, subset, to);
        call_send_bytes(call, rows[subset], subset_length(length, tier, subset), to);
    }
    return rows[tier->mine];
}

static char *receive_row(struct call *call, const struct tree *tree, const struct tier *tier, int *length, int told)
{
    if (told) {
        int *lengths = call_ints(call, tier->counts[tier->mine]);
        call_wait(call, call_receive(call, lengths, tier->counts[tier->mine], MPI_INT, tree->parent, TAG_TREE));
        if (call_ok(call))
            lengths_take(lengths, length, tier, tier->mine);
    }
    if (!call_ok(call))
        return NULL;
    size_t bytes = subset_length(length, tier, tier->mine);
    char *row = call_memory(call, bytes);
    call_wait(call, call_receive_bytes(call, row, bytes, tree->parent));
    return row;
}

char *blocks_down(struct call *call, const struct layout *layout, const struct tree *tree, int first_tier, int *length,
                  char *row, int told)
{
    if (!tree->member)
        return NULL;
    int first = first_tier;
    if (tree->parent >= 0) {
        row = receive_row(call, tree, &layout->tier[tree->parent_tier], length, told);
        first = tree->parent_tier + 1;
    }
    for (int t = first; t < layout->tiers && call_ok(call); t++)
        row = distribute(call, tree, layout, t, length, row, told);
    return row;
}
