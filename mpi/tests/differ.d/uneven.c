/* The operations that only move data, with a count for each rank. */
#include "differ.h"

#include <stdlib.h>

/* Blocks in a buffer: in order of ranks or backwards, with or without gaps. */
struct row {
    const struct type *type;
    int *counts, *displs;
    long elements;
};

static void row_make(struct round *round, struct row *row, const int *units, struct dice *for_types)
{
    int backwards = roll(&round->own, 2), gap = (int)roll(&round->own, 3);
    row->type = &types[roll(for_types, EXCHANGEABLE)];
    row->counts = malloc(2 * (size_t)round->size * sizeof *row->counts);
    row->displs = row->counts + round->size;
    row->elements = 0;
    int any = 0;
    for (int r = 0; r < round->size; r++)
        any |= units[r];
    for (int i = 0; i < round->size; i++) {
        int r = backwards ? round->size - 1 - i : i;
        row->counts[r] = units[r] * UNIT_WORDS / row->type->words;
        row->displs[r] = (int)row->elements;
        row->elements += row->counts[r] + (any ? gap : 0);
    }
}

static int *some_counts(struct round *round, int count, int most)
{
    int *units = malloc((size_t)count * sizeof *units);
    int nothing = roll(&round->dice, 8) == 0;
    for (int i = 0; i < count; i++)
        units[i] = nothing ? 0 : some_units(&round->dice, most);
    return units;
}

static uint64_t salt(const struct round *round, int which)
{
    return mix(round->seed, (uint64_t)(round->rank * 8 + which));
}

/* One block of this rank, and, where they count, those of all. */
struct setting {
    int *units, root, in_place, single_count;
    struct row row;
    const struct type *single_type;
    struct area blocks, single;
};

static void set(struct round *round, struct setting *s, int rooted)
{
    /* Open MPI's MPI_Allgatherv hangs if ranks have different datatypes for the same signature:
     * it takes its algorithm by a size that it reckons with them. */
    struct dice *for_types = rooted ? &round->own : &round->dice;
    s->units = some_counts(round, round->size, 6000);
    s->root = (int)roll(&round->dice, (uint32_t)round->size);
    s->in_place = roll(&round->dice, 3) == 0 && (!rooted || round->rank == s->root);
    row_make(round, &s->row, s->units, for_types);
    s->single_type = &types[roll(for_types, EXCHANGEABLE)];
    s->single_count = s->units[round->rank] * UNIT_WORDS / s->single_type->words;
    area_make(&s->blocks, s->row.type, s->row.elements, salt(round, 0));
    area_make(&s->single, s->single_type, s->single_count, salt(round, 1));
}

static void unset(struct setting *s)
{
    free(s->units);
    free(s->row.counts);
}

void round_gatherv(struct round *round)
{
    struct setting s;
    set(round, &s, 1);
#define CALL(gatherv, side) \
    gatherv(s.in_place ? MPI_IN_PLACE : side(&s.single), s.single_count, s.single_type->type, side(&s.blocks), \
            s.row.counts, s.row.displs, s.row.type->type, s.root, round->comm)
    int code = CALL(MPI_Gatherv, ours), native_code = CALL(native.Gatherv, theirs);
#undef CALL
    check(round, code, native_code, &s.single, &s.blocks);
    unset(&s);
}

void round_scatterv(struct round *round)
{
    struct setting s;
    set(round, &s, 1);
#define CALL(scatterv, side) \
    scatterv(side(&s.blocks), s.row.counts, s.row.displs, s.row.type->type, \
             s.in_place ? MPI_IN_PLACE : side(&s.single), s.single_count, s.single_type->type, s.root, round->comm)
    int code = CALL(MPI_Scatterv, ours), native_code = CALL(native.Scatterv, theirs);
#undef CALL
    check(round, code, native_code, &s.blocks, &s.single);
    unset(&s);
}

void round_allgatherv(struct round *round)
{
    struct setting s;
    set(round, &s, 0);
#define CALL(allgatherv, side) \
    allgatherv(s.in_place ? MPI_IN_PLACE : side(&s.single), s.single_count, s.single_type->type, side(&s.blocks), \
               s.row.counts, s.row.displs, s.row.type->type, round->comm)
    int code = CALL(MPI_Allgatherv, ours), native_code = CALL(native.Allgatherv, theirs);
#undef CALL
    check(round, code, native_code, &s.single, &s.blocks);
    unset(&s);
}

void round_alltoallv(struct round *round)
{
    int size = round->size, in_place = roll(&round->dice, 3) == 0;
    int *all = some_counts(round, size * size, 1200), *column = malloc((size_t)size * sizeof *column);
    struct row send, recv;
    struct area out, in;
    /* In place, what two ranks have for each other is equally long. */
    for (int i = 0; in_place && i < size; i++)
        for (int j = 0; j < i; j++)
            all[i * size + j] = all[j * size + i];
    for (int r = 0; r < size; r++)
        column[r] = all[r * size + round->rank];
    row_make(round, &send, &all[round->rank * size], &round->own);
    row_make(round, &recv, column, &round->own);
    area_make(&out, send.type, send.elements, salt(round, 0));
    area_make(&in, recv.type, recv.elements, salt(round, 1));
#define CALL(alltoallv, side) \
    alltoallv(in_place ? MPI_IN_PLACE : side(&out), send.counts, send.displs, send.type->type, side(&in), recv.counts, \
              recv.displs, recv.type->type, round->comm)
    int code = CALL(MPI_Alltoallv, ours), native_code = CALL(native.Alltoallv, theirs);
#undef CALL
    check(round, code, native_code, &out, &in);
    free(send.counts);
    free(recv.counts);
    free(column);
    free(all);
}
