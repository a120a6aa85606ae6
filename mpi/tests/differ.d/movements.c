/* The operations that only move data, with equal counts. */
#include "differ.h"

/* Each rank has its own types, of which the signature is the same: so many units. */
struct half {
    const struct type *type;
    int count;
};

static struct half some_half(struct round *round, int units, int structure)
{
    const struct type *type = &types[structure ? STRUCT : roll(&round->own, EXCHANGEABLE)];
    return (struct half){ type, structure ? units : units * UNIT_WORDS / type->words };
}

static void make(struct round *round, struct area *area, const struct half *half, int blocks, int which)
{
    area_make(area, half->type, (long)half->count * blocks, mix(round->seed, (uint64_t)(round->rank * 8 + which)));
}

void round_barrier(struct round *round)
{
    check(round, MPI_Barrier(round->comm), native.Barrier(round->comm), NULL, NULL);
}

void round_bcast(struct round *round)
{
    int units = some_units(&round->dice, 20000), root = (int)roll(&round->dice, (uint32_t)round->size);
    struct half half = some_half(round, units, roll(&round->dice, 6) == 0);
    struct area area;
    make(round, &area, &half, 1, 0);
    int code = MPI_Bcast(ours(&area), half.count, half.type->type, root, round->comm);
    int native_code = native.Bcast(theirs(&area), half.count, half.type->type, root, round->comm);
    check(round, code, native_code, round->rank == root ? &area : NULL, round->rank == root ? NULL : &area);
}

/* What these have in common: counts, types, a root and whether it is in place. */
struct setting {
    struct half send, recv;
    int root, in_place;
    struct area out, in;
};

static void set(struct round *round, struct setting *setting, int most)
{
    int units = some_units(&round->dice, most), structure = roll(&round->dice, 6) == 0;
    setting->root = (int)roll(&round->dice, (uint32_t)round->size);
    setting->in_place = roll(&round->dice, 3) == 0;
    setting->send = some_half(round, units, structure);
    setting->recv = some_half(round, units, structure);
}

void round_gather(struct round *round)
{
    struct setting s;
    set(round, &s, 3000);
    int at_root = round->rank == s.root, in_place = s.in_place && at_root;
    make(round, &s.out, &s.send, 1, 0);
    make(round, &s.in, &s.recv, at_root ? round->size : 1, 1);
#define CALL(gather, side) \
    gather(in_place ? MPI_IN_PLACE : side(&s.out), s.send.count, s.send.type->type, side(&s.in), s.recv.count, \
           s.recv.type->type, s.root, round->comm)
    int code = CALL(MPI_Gather, ours), native_code = CALL(native.Gather, theirs);
#undef CALL
    check(round, code, native_code, &s.out, &s.in);
}

void round_scatter(struct round *round)
{
    struct setting s;
    set(round, &s, 3000);
    int at_root = round->rank == s.root, in_place = s.in_place && at_root;
    make(round, &s.out, &s.send, at_root ? round->size : 1, 0);
    make(round, &s.in, &s.recv, 1, 1);
#define CALL(scatter, side) \
    scatter(side(&s.out), s.send.count, s.send.type->type, in_place ? MPI_IN_PLACE : side(&s.in), s.recv.count, \
            s.recv.type->type, s.root, round->comm)
    int code = CALL(MPI_Scatter, ours), native_code = CALL(native.Scatter, theirs);
#undef CALL
    check(round, code, native_code, &s.out, &s.in);
}

void round_allgather(struct round *round)
{
    struct setting s;
    set(round, &s, 3000);
    make(round, &s.out, &s.send, 1, 0);
    make(round, &s.in, &s.recv, round->size, 1);
#define CALL(allgather, side) \
    allgather(s.in_place ? MPI_IN_PLACE : side(&s.out), s.send.count, s.send.type->type, side(&s.in), s.recv.count, \
              s.recv.type->type, round->comm)
    int code = CALL(MPI_Allgather, ours), native_code = CALL(native.Allgather, theirs);
#undef CALL
    check(round, code, native_code, &s.out, &s.in);
}

void round_alltoall(struct round *round)
{
    struct setting s;
    set(round, &s, 600);
    make(round, &s.out, &s.send, round->size, 0);
    make(round, &s.in, &s.recv, round->size, 1);
#define CALL(alltoall, side) \
    alltoall(s.in_place ? MPI_IN_PLACE : side(&s.out), s.send.count, s.send.type->type, side(&s.in), s.recv.count, \
             s.recv.type->type, round->comm)
    int code = CALL(MPI_Alltoall, ours), native_code = CALL(native.Alltoall, theirs);
#undef CALL
    check(round, code, native_code, &s.out, &s.in);
}
