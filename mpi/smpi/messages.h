/* Messages among some ranks of a communicator, of which the algorithms of real MPIs are made. */
#ifndef ISTHMUS_MESSAGES_H
#define ISTHMUS_MESSAGES_H

#include <mpi.h>
#include <stddef.h>

/* Ranks that take part. They are numbered from 0 within the group. */
struct group {
    MPI_Comm comm;
    int size, me;
    const int *ranks; /* [size] of the communicator; NULL if all of it take part, in order */
};

/* What each rank contributes to a reduction, or gets of it. */
struct vector {
    MPI_Datatype type;
    MPI_Op op;
    int count;
    int item_bytes;
};

/* All ranks of a communicator. */
struct group group_of(MPI_Comm comm);

/* The tag of a message: another one where it is so long that it waits for its receiver. SMPI has a queue for these and
 * one for all others, so that of two messages with one tag a long one may get the place of a short one. MPI forbids
 * that (MPI-4.1, 3.5). */
int tag_of(int tag, long length);

/* The largest power of two up to `size`, which is at least 1. */
int power_of_two(int size);

int give(const struct group *group, const void *bytes, long length, int to);
int take(const struct group *group, void *bytes, long length, int from);
int start_giving(const struct group *group, const void *bytes, long length, int to, MPI_Request *request);
int start_taking(const struct group *group, void *bytes, long length, int from, MPI_Request *request);
/* Sends to one rank and receives from one, at once. */
int swap(const struct group *group, const void *given, long given_length, int to, void *taken, long taken_length, int from);

/* Adds `items` of a vector to those at `sum`. */
int combine(const struct vector *vector, const void *items, void *sum, int count);

/* Barriers. */
int barrier_by_doubling(const struct group *group);
int barrier_by_dissemination(const struct group *group);
int barrier_along_tree(const struct group *group);

/* A rank's place in a tree of ranks. */
#define CHILDREN_MAX 64
struct tree {
    int parent; /* -1 of the root */
    int children;
    int child[CHILDREN_MAX];
};

/* Binomial, the farthest ranks last: the root is followed by ranks 1, 2, 4 and so on. */
struct tree tree_of_doubling(const struct group *group, int root);
/* Binomial, with the ranks of a subtree in order. */
struct tree tree_in_order(const struct group *group, int root);
/* As in order, with `radix` in place of 2, the largest subtree first. */
struct tree tree_of_radix(const struct group *group, int root, int radix);
/* Two children of each rank. */
struct tree tree_of_two(const struct group *group, int root);

/* One message from each rank to its children. With `at_once` none waits for another one. */
int bcast_along(const struct group *group, void *bytes, long length, const struct tree *tree, int at_once);
int bcast_from_root(const struct group *group, void *bytes, long length, int root);
/* Along two halves of a tree of two, each with half of the data, which pairs of ranks exchange
 * at last. The data has at least two items. */
int bcast_in_halves(const struct group *group, void *bytes, long length, long item_bytes, int root);
/* Pieces are scattered, then put together in a ring or by doubling. Doubling is for numbers of
 * ranks that are powers of two. */
int bcast_in_pieces(const struct group *group, void *bytes, long length, int root, int ring);

/* Each rank adds up what its children send. With `ahead` it receives from the next child meanwhile. */
int reduce_along(const struct group *group, const struct vector *vector, const void *given, void *sum,
                 const struct tree *tree, int ahead);
/* By halving, then gathered; at least as many items as ranks. */
int reduce_in_pieces(const struct group *group, const struct vector *vector, const void *given, void *sum, int root);
int allreduce_by_doubling(const struct group *group, const struct vector *vector, const void *given, void *sum);
/* By halving, then doubling; at least as many items as ranks. Where the number of ranks is no power of
 * two, pairs of ranks come first: with `shared` each of a pair adds up half of the data. */
int allreduce_in_pieces(const struct group *group, const struct vector *vector, const void *given, void *sum, int shared);

/* Blocks of `length` bytes, one of each rank. */
int gather_along_tree(const struct group *group, const void *block, long length, void *all, int root);
int scatter_along_tree(const struct group *group, const void *all, long length, void *block, int root);
int scatter_from_root(const struct group *group, const void *all, long length, void *block, int root);
/* For numbers of ranks that are powers of two. */
int allgather_by_doubling(const struct group *group, const void *block, long length, void *all);
int allgather_by_dissemination(const struct group *group, const void *block, long length, void *all);
int allgather_in_ring(const struct group *group, const void *block, long length, void *all);
/* With the two neighbours in turns, two blocks each. For even numbers of ranks. */
int allgather_by_neighbors(const struct group *group, const void *block, long length, void *all);

#endif
