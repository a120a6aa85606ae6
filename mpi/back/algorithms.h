/* The algorithms. Every other list of them comes from this one: values and names, what `isthmus coll explain` says
 * of each, and what the tests run, which read this file (tests/mpis.py).
 *
 * X(VALUE, name, operations that have it, traits, why choose() takes it). The name is that in ISTHMUS_COLL, in
 * reports and in docs/collectives.md. choose() considers them in this order: one must be clearly faster than those
 * before it, which send fewer messages. */
#ifndef ISTHMUS_ALGORITHMS_H
#define ISTHMUS_ALGORITHMS_H

/* Those among which estimates decide: name_seconds() in cost_own.c and cost_native.c. */
#define ESTIMATED_OF(X) \
    X(NATIVE, native, ALL, 0, "nothing is clearly faster than the MPI's own") \
    X(LEADERS, leaders, ALL, 0, "one crossing is faster than several, one after the other") \
    X(SEGMENTS, segments, BCAST | REDUCE, 0, "segments cross while others spread within the sites") \
    X(LANES, lanes, BCAST | REDUCE | ALLREDUCE | ALLGATHER | REDUCE_SCATTER, 0, \
      "many ranks of each site cross at once, each with its share") \
    X(SCATTERED, scattered, BCAST | REDUCE | ALLREDUCE, FLAT, \
      "each rank has its piece: a link carries the data twice at most") \
    X(RELAYED, relayed, BCAST | REDUCE, FLAT | REORDERS, \
      "each site passes its share on: a link carries the data once in and once out")

#define ALGORITHMS_OF(X) \
    ESTIMATED_OF(X) \
    X(DIRECT, direct, GATHER, UNEVEN, \
      "blocks of which no rank knows all lengths cross at once")

enum trait {
    /* It isn't for sites that levels above part: what goes directly between all sites would cross
     * between wider places more than once. */
    FLAT = 1,
    /* It combines parts in another order than that of ranks: only for operations that are commutative. */
    REORDERS = 2,
    /* It is for MPI_Gatherv only: choose_uneven() takes it, without an estimate. */
    UNEVEN = 4,
};

#endif
