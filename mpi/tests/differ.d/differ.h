/* Calls every collective twice, by this library and by the MPI itself, and compares all bytes
 * of all buffers. Everything follows from a seed. */
#ifndef DIFFER_H
#define DIFFER_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* The MPI's own functions, past this library. */
#define NATIVE_CALLS(X) \
    X(Barrier) X(Bcast) X(Reduce) X(Allreduce) X(Gather) X(Gatherv) X(Scatter) X(Scatterv) X(Allgather) \
    X(Allgatherv) X(Reduce_scatter) X(Reduce_scatter_block) X(Alltoall) X(Alltoallv)
struct native {
#define X(name) __typeof__(&MPI_##name) name;
    NATIVE_CALLS(X)
#undef X
};
extern struct native native;

/* Finds them. Returns 0, or -1 if there are none, or if MPI_X is the MPI's own. */
int native_find(void);

/* A sequence of numbers, the same on all ranks that start it with the same seed. */
struct dice {
    uint64_t state;
};
uint32_t roll(struct dice *dice, uint32_t below);
uint64_t mix(uint64_t a, uint64_t b);

/* Datatypes of unsigned ints, of which an element has `words`, at these places. */
#define WORDS_MAX 4
struct type {
    const char *name;
    MPI_Datatype type;
    int words;
    int at[WORDS_MAX];          /* bytes from the element's origin; for user operations */
    MPI_Aint extent, true_lb, true_extent;
};
enum { WORD, VECTOR, NEGATIVE, PERMUTED, TRIPLE, STRUCT, PAIR, MATRIX, GAPPED_MATRIX, TYPES };
extern struct type types[TYPES];
/* Types whose elements have 1, 2 or 3 words, and so can stand for each other, come first. */
#define EXCHANGEABLE (TRIPLE + 1)
#define UNIT_WORDS 6
void types_make(void);
void types_free(void);

/* User operations: commutative, not commutative. */
extern MPI_Op op_add, op_matrix;
void ops_make(void);
void ops_free(void);

/* A buffer with guards, and its double for the MPI's own call. Filled with what follows from
 * `salt`. */
struct area {
    const struct type *type;
    size_t bytes, origin;
    int no_address;     /* nothing is in it, and the calls are given NULL */
    unsigned char *ours, *theirs, *before;
};
void area_make(struct area *area, const struct type *type, long elements, uint64_t salt);
void area_free(struct area *area);
void *ours(const struct area *area);
void *theirs(const struct area *area);
/* Whether both are the same and, if `constant`, as before. */
int area_same(const struct area *area, int constant);

/* One round on one communicator. */
struct round {
    MPI_Comm comm;
    int rank, size;
    uint64_t seed;      /* equal at all of its ranks */
    struct dice dice;   /* the same */
    struct dice own;    /* the calling rank's */
    const char *what;   /* for messages */
    const char *with;   /* the type of a reduction, or NULL */
    int failed;
};
#define ROUNDS_OF(X) \
    X(barrier) X(bcast) X(reduce) X(allreduce) X(gather) X(gatherv) X(scatter) X(scatterv) X(allgather) \
    X(allgatherv) X(reduce_scatter) X(reduce_scatter_block) X(alltoall) X(alltoallv)
#define X(name) void round_##name(struct round *round);
ROUNDS_OF(X)
#undef X

/* Some sizes: nothing, little, odd, much. */
int some_units(struct dice *dice, int most);
void check(struct round *round, int code, int native_code, const struct area *constant, const struct area *result);

/* What a call answers to wrong arguments must be what the MPI answers. Returns failures. */
int errors_differ(MPI_Comm comm);

/* The same of equal send and receive buffers, where errors are returned. */
int equal_differ(MPI_Comm comm);

int error_class(int code);

#endif
