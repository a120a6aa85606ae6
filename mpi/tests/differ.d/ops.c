#include "differ.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRIME 65521u

MPI_Op op_add, op_matrix;

static const struct type *type_of(MPI_Datatype wanted)
{
    for (int t = 0; t < TYPES; t++)
        if (types[t].type == wanted)
            return &types[t];
    fprintf(stderr, "differ: a user operation was given a datatype that isn't the program's\n");
    abort();
}

static uint32_t get(const struct type *type, const void *buffer, int element, int word)
{
    uint32_t value;
    memcpy(&value, (const char *)buffer + element * type->extent + type->at[word], sizeof value);
    return value % PRIME;
}

static void put(const struct type *type, void *buffer, int element, int word, uint32_t value)
{
    memcpy((char *)buffer + element * type->extent + type->at[word], &value, sizeof value);
}

static void add(void *in, void *inout, int *length, MPI_Datatype *datatype)
{
    const struct type *type = type_of(*datatype);
    for (int e = 0; e < *length; e++)
        for (int w = 0; w < type->words; w++)
            put(type, inout, e, w, (get(type, in, e, w) + get(type, inout, e, w)) % PRIME);
}

/* inout = in * inout, 2x2. */
static void multiply(void *in, void *inout, int *length, MPI_Datatype *datatype)
{
    const struct type *type = type_of(*datatype);
    for (int e = 0; e < *length; e++) {
        uint64_t a[4], b[4];
        for (int w = 0; w < 4; w++) {
            a[w] = get(type, in, e, w);
            b[w] = get(type, inout, e, w);
        }
        for (int w = 0; w < 4; w++) {
            int row = w / 2 * 2, column = w % 2;
            put(type, inout, e, w, (uint32_t)((a[row] * b[column] + a[row + 1] * b[2 + column]) % PRIME));
        }
    }
}

void ops_make(void)
{
    MPI_Op_create(add, 1, &op_add);
    MPI_Op_create(multiply, 0, &op_matrix);
}

void ops_free(void)
{
    MPI_Op_free(&op_add);
    MPI_Op_free(&op_matrix);
}
