#include "blocks.h"

#include <string.h>

#include "row_blocks.h"

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

/* The rows of a tier's other subsets come in; the own one is there. Returns the set's row. */
static char *collect(struct call *call, const struct tree *tree, const struct layout *layout, int number,
                     const int *length, char *own_row)
{
    const struct tier *tier = &layout->tier[number];
    char **rows = call_memory(call, (size_t)tier->subsets * sizeof *rows);
    struct coming *coming = call_memory(call, (size_t)tier->subsets * sizeof *coming);
    int count = 0;
    for (int s = 0; s < tier->subsets && call_ok(call); s++)
        rows[s] = own_row;
    for (int c = 0; c < tree->children && call_ok(call); c++) {
        if (tree->child[c].tier != number)
            continue;
        int s = tree->child[c].subset;
        size_t bytes = subset_length(length, tier, s);
        rows[s] = call_memory(call, bytes);
        if (call_ok(call))
            coming[count++] = row_comes(call, rows[s], bytes, tier->subsets - 1, tree->child[c].rank);
    }
    if (call_ok(call))
        rows_receive(call, coming, count);
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
            size_t bytes = subset_length(length, tier, tier->mine);
            struct going going = row_goes(call, row, bytes, tier->subsets - 1, tree->parent);
            rows_send(call, &going, 1);
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
    struct going *going = call_memory(call, (size_t)tier->subsets * sizeof *going);
    for (int s = 0; s < tier->subsets && call_ok(call); s++)
        rows[s] = call_memory(call, subset_length(length, tier, s));
    if (!call_ok(call))
        return NULL;
    rows_part(length, tier, row, rows);
    int count = 0;
    for (int c = 0; c < tree->children && call_ok(call); c++) {
        if (tree->child[c].tier != number)
            continue;
        int subset = tree->child[c].subset, to = tree->child[c].rank;
        if (told)
            send_lengths(call, length, tier, subset, to);
        going[count++] = row_goes(call, rows[subset], subset_length(length, tier, subset), tier->subsets - 1, to);
    }
    rows_send(call, going, count);
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
    if (!call_ok(call))
        return NULL;
    struct coming coming = row_comes(call, row, bytes, tier->subsets - 1, tree->parent);
    rows_receive(call, &coming, 1);
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
