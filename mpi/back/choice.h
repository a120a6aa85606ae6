/* Which algorithm a collective takes. Pure: every rank decides the same without talking,
 * since all that goes in is the same on all ranks. */
#ifndef ISTHMUS_CHOICE_H
#define ISTHMUS_CHOICE_H

#include <stddef.h>

#include "algorithms.h"
#include "layout.h"
#include "topology.h"

enum operation {
    OP_BARRIER, OP_BCAST, OP_REDUCE, OP_ALLREDUCE, OP_GATHER, OP_SCATTER, OP_ALLGATHER,
    OP_REDUCE_SCATTER, OP_ALLTOALL, OPERATIONS
};

enum algorithm {
#define X(value, ...) value,
    ALGORITHMS_OF(X)
#undef X
    ALGORITHMS
};

/* What ISTHMUS_COLL asks for, beside the name of an algorithm. */
#define CHOICE_AUTO (-1)

/* Most ranks of a site that cross at once in LANES. */
#define LANES_MAX 16

/* Parts in which a site gets what is RELAYED. Each is something that all of its ranks wait for. */
#define RELAYED_PARTS 4

/* Whose algorithms the native ones are. */
enum family { FAMILY_ANY, FAMILY_OPENMPI, FAMILY_MPICH };

/* One level at which sets of ranks fall into subsets, between which one message crosses. */
struct level {
    int number;                /* index into the topology's levels */
    int subsets;               /* the most of a set */
    int ranks;                 /* the most of a subset */
    double rtt_seconds;        /* the longest between sites that are together at the levels above, but not here */
    double bytes_per_second;   /* the least, for one connection */
};

/* Crossings that follow one another, and so add up. One between sites that are nearer to each
 * other than the farthest, or have a better rate than the worst, counts less. */
struct crossings {
    double latency;   /* as so many between the farthest */
    double bytes;     /* at the worst rate */
    int number;
    double link;      /* of trees and rings: what the busiest site's link carries in one direction, as so many messages at
                       * the worst rate */
};

/* The trees in which MPIs send to all ranks, or receive from them. */
enum native_tree {
    IN_ORDER,   /* binomial; the ranks below a rank follow it: MPICH's, and Open MPI's of all but Bcast */
    DOUBLED,    /* binomial; the ranks that have the message double: Open MPI's of Bcast */
    OF_FOUR,    /* Open MPI's k-nomial tree of radix 4, in order as well */
    OF_TWO,     /* Open MPI's binary tree */
    TREES
};

/* Those of one after those of the other. */
struct crossings crossings_sum(struct crossings a, struct crossings b);

/* A communicator over sites, as the choice sees it. */
struct shape {
    int size;                  /* ranks */
    int sites;
    int smallest, largest;     /* ranks at the smallest and at the largest site */
    double wan_rtt_seconds;    /* the longest between two of its sites */
    double wan_bytes_per_second; /* the least, for one connection */
    double lan_rtt_seconds;    /* within a site */
    double lan_bytes_per_second;
    enum family family;
    int is_oversubscribed;     /* one of its ranks shares processors with more ranks than these are */
    int contiguous;            /* each site's ranks follow one another */
    int levels;                /* that part the ranks, the widest first; 1 where sites stand side by side */
    struct level level[LEVELS_MAX];
    int shared_links;          /* all connections of a site share the rate of one */
    int is_ordered;            /* parts are combined in the order of ranks: the operation isn't commutative */
    /* The patterns of native algorithms: */
    struct crossings tree[TREES];   /* from `tree_root` */
    int far_children[TREES];        /* the most children that a rank of the tree has at other sites */
    struct crossings star;          /* between there and each other rank, one after the other */
    int tree_root;
    struct crossings doubling;      /* recursive doubling */
    struct crossings dissemination; /* from rank r to r + 2^k in step k */
    double doubling_blocks, dissemination_blocks;   /* of an allgather that the busiest site's link carries, as above */
    struct crossings ring;          /* from rank r to r + 1, size - 1 times */
    struct crossings chain;         /* the same, beginning where it is best */
};

/* Where the ranks of a communicator are. */
struct places {
    int size;
    const int *site_of;     /* [size] the site of each rank, numbered from 0 without gaps */
    int sites;
    const int *site;        /* [sites] the topology's number of each */
    const struct topology *topology;
};

/* Fills all but the family and `is_oversubscribed`. What wasn't measured is taken to be usual. Returns 0, or -1
 * without memory. */
int shape_make(struct shape *shape, const struct places *places);

/* The same for trees and a star from another root. */
int shape_root(struct shape *shape, const struct places *places, int root);

/* `bytes`: what one rank contributes, or, for Bcast, the message. `commutative`: of a
 * reduction's operation. */
enum algorithm choose(enum operation operation, const struct shape *shape, size_t bytes, int commutative);

/* The same, where `asked` may be an algorithm that the user wants instead. */
enum algorithm choose_asked(enum operation operation, const struct shape *shape, size_t bytes, int commutative,
                            int asked);

/* Where each rank has its own size, which the others don't know (Gatherv, Scatterv, Alltoallv):
 * only the layout counts. */
enum algorithm choose_uneven(enum operation operation, const struct shape *shape, int asked);

/* The time that an algorithm would take, in seconds; what choose() compares. How many connections
 * a site's link bears at their full rate isn't known, so choose() compares both ends: with and
 * without `shared_links`. 0 for an algorithm that has no estimate. */
double predicted_seconds(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes);

/* Whether the operation has that algorithm. */
int has_algorithm(enum operation operation, enum algorithm algorithm);

/* The same on this shape, where all ranks know the size. */
int offers(enum operation operation, enum algorithm algorithm, const struct shape *shape);

/* The size of the pieces into which SEGMENTS cuts a message. */
size_t segment_bytes(size_t bytes);

/* The number of blocks into which RELAYED cuts a message. Each has a piece for each site but the root's. */
int relayed_blocks(size_t bytes, int sites);

/* The number of blocks into which messages are cut of which so many share a site's link, `bytes` each. A rank has so many
 * messages of each block. */
int crossing_blocks(const struct shape *shape, size_t bytes, double connections, double messages);

/* The same of messages that all ranks send to other sites at the same time, `bytes` from each rank to each site. */
int swapped_blocks(const struct shape *shape, size_t bytes);

const char *operation_name(enum operation operation);
const char *algorithm_name(enum algorithm algorithm);

/* Why choose() has taken it. */
const char *algorithm_reason(enum algorithm algorithm);

/* The value of ISTHMUS_COLL as an algorithm or CHOICE_AUTO; -2 if it is none. NULL: auto. */
int asked_algorithm(const char *name);

#endif
