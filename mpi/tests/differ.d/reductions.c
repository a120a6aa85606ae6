#include "differ.h"

#include <stdio.h>
#include <stdlib.h>

/* An operation and a datatype that it works on. */
static MPI_Op choose_op(struct round *round, const struct type **type)
{
    static const int for_add[] = { WORD, VECTOR, NEGATIVE, PERMUTED, TRIPLE, MATRIX, GAPPED_MATRIX };
    switch (roll(&round->dice, 6)) {
    case 0: *type = &types[WORD]; return MPI_SUM;
    case 1: *type = &types[WORD]; return roll(&round->dice, 2) ? MPI_MAX : MPI_BXOR;
    case 2: *type = &types[PAIR]; return roll(&round->dice, 2) ? MPI_MINLOC : MPI_MAXLOC;
    case 3: *type = &types[for_add[roll(&round->dice, sizeof for_add / sizeof *for_add)]]; return op_add;
    case 4: *type = &types[MATRIX]; return op_matrix;
    default: *type = &types[GAPPED_MATRIX]; return op_matrix;
    }
}

static MPI_Op some_op(struct round *round, const struct type **type)
{
    MPI_Op op = choose_op(round, type);
    round->with = (*type)->name;
    return op;
}

static void make(struct round *round, struct area *area, const struct type *type, long elements, int which)
{
    area_make(area, type, elements, mix(round->seed, (uint64_t)(round->rank * 8 + which)));
}

static int is_mpich_5(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, major = 0;
    MPI_Get_library_version(version, &length);
    return sscanf(version, "MPICH Version: %d", &major) == 1 && major == 5;
}

/* MPICH 5 reduces in shared memory from a communicator's fifth call on (release_gather.h), if all of its
 * ranks are on one node and the operation is commutative. A rank 0 that isn't the root then frees what it
 * reduced into by the address of the elements' origin, which ends the program unless they begin there. */
static int some_root(struct round *round, MPI_Op op, const struct type *type)
{
    int root = (int)roll(&round->dice, (uint32_t)round->size);
    return op == op_add && type->true_lb != 0 && is_mpich_5() ? 0 : root;
}

void round_reduce(struct round *round)
{
    const struct type *type;
    MPI_Op op = some_op(round, &type);
    int count = some_units(&round->dice, 30000), root = some_root(round, op, type);
    int in_place = roll(&round->dice, 3) == 0 && round->rank == root;
    struct area send, recv;
    make(round, &send, type, count, 0);
    make(round, &recv, type, count, 1);
    check(round,
          MPI_Reduce(in_place ? MPI_IN_PLACE : ours(&send), ours(&recv), count, type->type, op, root, round->comm),
          native.Reduce(in_place ? MPI_IN_PLACE : theirs(&send), theirs(&recv), count, type->type, op, root, round->comm),
          &send, &recv);
}

void round_allreduce(struct round *round)
{
    const struct type *type;
    MPI_Op op = some_op(round, &type);
    int count = some_units(&round->dice, 30000), in_place = roll(&round->dice, 3) == 0;
    struct area send, recv;
    make(round, &send, type, count, 0);
    make(round, &recv, type, count, 1);
    check(round, MPI_Allreduce(in_place ? MPI_IN_PLACE : ours(&send), ours(&recv), count, type->type, op, round->comm),
          native.Allreduce(in_place ? MPI_IN_PLACE : theirs(&send), theirs(&recv), count, type->type, op, round->comm),
          &send, &recv);
}

/* MPICH 4 and 5 write beyond their memory in MPI_Reduce_scatter_block of an operation that isn't
 * commutative on elements that don't begin at their origin. */
static MPI_Op some_op_to_scatter(struct round *round, const struct type **type)
{
    MPI_Op op = some_op(round, type);
    if (op == op_matrix)
        *type = &types[MATRIX];
    return op;
}

void round_reduce_scatter(struct round *round)
{
    const struct type *type;
    MPI_Op op = some_op_to_scatter(round, &type);
    int in_place = roll(&round->dice, 3) == 0, total = 0;
    int *counts = malloc((size_t)round->size * sizeof *counts);
    for (int r = 0; r < round->size; r++)
        total += counts[r] = some_units(&round->dice, 4000);
    struct area send, recv;
    make(round, &send, type, total, 0);
    make(round, &recv, type, in_place ? total : counts[round->rank], 1);
    check(round,
          MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : ours(&send), ours(&recv), counts, type->type, op, round->comm),
          native.Reduce_scatter(in_place ? MPI_IN_PLACE : theirs(&send), theirs(&recv), counts, type->type, op, round->comm),
          &send, in_place ? NULL : &recv);
    /* In place, what is behind the result is undefined. */
    if (in_place) {
        struct area *whole = &recv;
        size_t used = whole->origin + (size_t)type->true_lb;
        if (counts[round->rank] > 0)
            used += (size_t)((counts[round->rank] - 1) * type->extent + type->true_extent);
        for (size_t i = 0; i < whole->bytes; i++)
            if ((i < used || i >= whole->bytes - 64) && whole->ours[i] != whole->theirs[i])
                round->failed = 1;
        area_free(whole);
    }
    free(counts);
}

void round_reduce_scatter_block(struct round *round)
{
    const struct type *type;
    MPI_Op op = some_op_to_scatter(round, &type);
    int count = some_units(&round->dice, 4000);
    struct area send, recv;
    make(round, &send, type, (long)count * round->size, 0);
    make(round, &recv, type, count, 1);
    check(round, MPI_Reduce_scatter_block(ours(&send), ours(&recv), count, type->type, op, round->comm),
          native.Reduce_scatter_block(theirs(&send), theirs(&recv), count, type->type, op, round->comm), &send, &recv);
}
