#include "differ.h"

struct type types[TYPES] = {
    [WORD] = { .name = "word", .words = 1, .at = { 0 } },
    [VECTOR] = { .name = "vector with a gap", .words = 2, .at = { 0, 12 } },
    [NEGATIVE] = { .name = "negative lower bound", .words = 2, .at = { -4, 4 } },
    [PERMUTED] = { .name = "last word first", .words = 2, .at = { 4, 0 } },
    [TRIPLE] = { .name = "three words", .words = 3, .at = { 0, 4, 8 } },
    [STRUCT] = { .name = "structure", .words = 0 },
    [PAIR] = { .name = "pair", .words = 2, .at = { 0, 4 } },
    [MATRIX] = { .name = "matrix", .words = 4, .at = { 0, 4, 8, 12 } },
    [GAPPED_MATRIX] = { .name = "matrix with gaps", .words = 4, .at = { 8, 12, 20, 24 } },
};

static MPI_Datatype indexed(const struct type *type, MPI_Aint lb, MPI_Aint extent)
{
    MPI_Datatype blocks, made;
    MPI_Aint at[WORDS_MAX];
    for (int i = 0; i < type->words; i++)
        at[i] = type->at[i];
    MPI_Type_create_hindexed_block(type->words, 1, at, MPI_UNSIGNED, &blocks);
    MPI_Type_create_resized(blocks, lb, extent, &made);
    MPI_Type_free(&blocks);
    return made;
}

static MPI_Datatype structure(void)
{
    MPI_Datatype made;
    int lengths[] = { 1, 3, 1 };
    MPI_Aint at[] = { 0, 4, 16 };
    MPI_Datatype parts[] = { MPI_SHORT, MPI_CHAR, MPI_DOUBLE };
    MPI_Type_create_struct(3, lengths, at, parts, &made);
    return made;
}

void types_make(void)
{
    types[WORD].type = MPI_UNSIGNED;
    MPI_Type_vector(2, 1, 3, MPI_UNSIGNED, &types[VECTOR].type);
    types[NEGATIVE].type = indexed(&types[NEGATIVE], -8, 24);
    types[PERMUTED].type = indexed(&types[PERMUTED], 0, 8);
    MPI_Type_contiguous(3, MPI_UNSIGNED, &types[TRIPLE].type);
    types[STRUCT].type = structure();
    types[PAIR].type = MPI_2INT;
    MPI_Type_contiguous(4, MPI_UNSIGNED, &types[MATRIX].type);
    types[GAPPED_MATRIX].type = indexed(&types[GAPPED_MATRIX], 4, 32);
    for (int t = 0; t < TYPES; t++) {
        MPI_Aint lb;
        if (t != WORD && t != PAIR)
            MPI_Type_commit(&types[t].type);
        MPI_Type_get_extent(types[t].type, &lb, &types[t].extent);
        MPI_Type_get_true_extent(types[t].type, &types[t].true_lb, &types[t].true_extent);
    }
}

void types_free(void)
{
    for (int t = 0; t < TYPES; t++)
        if (t != WORD && t != PAIR)
            MPI_Type_free(&types[t].type);
}
