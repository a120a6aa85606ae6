/* What Open MPI's and MPICH's own algorithms take, which see ranks in rank order and no
 * sites. Of Open MPI, those count that it chooses itself, since its release 4.1, for so many
 * ranks and bytes. Of another MPI, and of operations for which Open MPI changes back and forth
 * with less than 8 ranks, the fastest counts, so that the estimate errs in favour of the native one.
 *
 * Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
 * Operations in MPICH", IJHPCA 19 (2005); ompi/mca/coll/tuned/coll_tuned_decision_fixed.c;
 * src/mpi/coll of MPICH. */
#include "cost.h"

#include <math.h>

#include "openmpi.h"

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* So many of the `steps` go between sites, the others stay. What one link carries takes its time as well, once the first
 * message is there; so do `questions` that wait behind it, one after the other. */
static double in_asked_steps(const struct shape *shape, int steps, struct crossings crossings, double bytes, double questions)
{
    int local = steps > crossings.number ? steps - crossings.number : 0;
    double ask = bytes > EAGER_BYTES ? shape->wan_rtt_seconds : 0, way = shape->wan_rtt_seconds / 2 + ask;
    double path = crossings.latency * way + crossings.number * MESSAGE_SECONDS +
                  crossings.bytes * bytes / shape->wan_bytes_per_second + local * lan_seconds(shape, bytes);
    double load = least(crossings.latency, 1) * way + crossings.link * bytes / shape->wan_bytes_per_second + questions * ask;
    return shape->shared_links ? most(path, load) : path;
}

static double in_steps(const struct shape *shape, int steps, struct crossings crossings, double bytes)
{
    return in_asked_steps(shape, steps, crossings, bytes, 0);
}

/* The same where a site's link carries several of them at once, `link_bytes` in all. */
static double in_shared_steps(const struct shape *shape, int steps, struct crossings crossings, double bytes,
                              double link_bytes)
{
    double more = rated_bytes(shape, bytes, link_bytes) - bytes;
    return in_steps(shape, steps, crossings, bytes) + crossings.bytes * more / shape->wan_bytes_per_second;
}

/* The same where all ranks of a site cross at once. */
static double in_steps_of_all(const struct shape *shape, int steps, struct crossings crossings, double bytes)
{
    return in_shared_steps(shape, steps, crossings, bytes, shape->smallest * bytes);
}

/* The latency of steps that carry little each, and `bytes` in all over the busiest connection. */
static double latency_and_bytes(const struct shape *shape, int steps, struct crossings crossings, double bytes)
{
    double all = in_steps(shape, steps, crossings, 0) + bytes / shape->wan_bytes_per_second;
    return all + (bytes > EAGER_BYTES * steps ? crossings.latency * shape->wan_rtt_seconds : 0);
}

static struct crossings fewer(struct crossings a, struct crossings b)
{
    return b.latency < a.latency ? b : a;
}

static int is_open_mpi(const struct shape *shape, int ranks)
{
    return shape->family == FAMILY_OPENMPI && shape->size >= ranks;
}

/* Every rank at once with the root. */
static double linear(const struct shape *shape, double bytes)
{
    return crossing_seconds(shape, bytes, bytes * (shape->size - shape->largest)) +
           (shape->size - 1) * MESSAGE_SECONDS + (shape->size - 1) * bytes / shape->lan_bytes_per_second;
}

/* MPICH's ranks ask a child once they have sent to the one before. */
static double along_tree(const struct shape *shape, enum native_tree tree, double bytes)
{
    double questions = shape->family == FAMILY_MPICH ? most(shape->far_children[tree] - 1, 0) : 0;
    return in_asked_steps(shape, steps_of(shape->size), shape->tree[tree], bytes, questions);
}

/* The tree of MPICH. Which one another MPI has isn't known. */
static double binomial(const struct shape *shape, double bytes)
{
    double in_order = along_tree(shape, IN_ORDER, bytes);
    return shape->family == FAMILY_ANY ? least(in_order, along_tree(shape, DOUBLED, bytes)) : in_order;
}

/* Each rank gets a piece from the root, and all put theirs together. */
static double scattered(const struct shape *shape, int steps, struct crossings together, double bytes, double link_bytes)
{
    return latency_and_bytes(shape, steps_of(shape->size) + steps, crossings_sum(shape->tree[IN_ORDER], together),
                             rated_bytes(shape, 1.5 * bytes, 0.5 * bytes + link_bytes));
}

/* MPICH scatters for so many ranks. It puts pieces together by recursive doubling if the ranks are a power of two, for so
 * many bytes. */
#define MPICH_SCATTERS_FOR 8
#define MPICH_DOUBLES_UP_TO 524288

/* Of trees, pipelines, and scattering and gathering. */
static double least_broadcast(const struct shape *shape, double bytes)
{
    double tree = binomial(shape, bytes);
    if (bytes <= 8192 || (shape->family == FAMILY_MPICH && shape->size < MPICH_SCATTERS_FOR))
        return tree;
    double pipeline = latency_and_bytes(shape, shape->size - 1, shape->chain, rated_bytes(shape, bytes, shape->chain.link * bytes));
    double in_ring = scattered(shape, shape->size - 1, shape->ring, bytes, shape->ring.link * bytes);
    double all = least(least(tree, pipeline), in_ring);
    int doubles = bytes <= MPICH_DOUBLES_UP_TO && 1 << steps_of(shape->size) == shape->size;
    if (shape->family == FAMILY_MPICH && !doubles)
        return all;
    return least(all, scattered(shape, steps_of(shape->size), shape->doubling, bytes,
                                shape->doubling_blocks * bytes / shape->size));
}

/* The root receives from one rank after the other. Large messages ask it, and wait until it is their turn. */
static double one_by_one(const struct shape *shape, double bytes)
{
    int others = shape->size - 1, local = others - shape->star.number;
    if (bytes <= EAGER_BYTES)
        return linear(shape, bytes);
    return shape->wan_rtt_seconds / 2 + shape->star.latency * shape->wan_rtt_seconds +
           shape->star.bytes * bytes / shape->wan_bytes_per_second + local * lan_seconds(shape, bytes) +
           others * MESSAGE_SECONDS;
}

/* The whole message goes along the ranks, each of whom has it before the next one. */
static double chain(const struct shape *shape, double bytes)
{
    return in_steps(shape, shape->size - 1, shape->chain, bytes);
}

static double open_mpi(const struct shape *shape, enum pattern pattern, enum native_tree binomial, double bytes, double all_at_once)
{
    switch (pattern) {
    case BINOMIAL: return along_tree(shape, binomial, bytes);
    case KNOMIAL: return along_tree(shape, OF_FOUR, bytes);
    case BINARY: return along_tree(shape, OF_TWO, bytes);
    case LINEAR: return all_at_once;
    case CHAIN: return chain(shape, bytes);
    case RING: case NEIGHBOURS: case OTHER: break;
    }
    return least_broadcast(shape, bytes);
}

static double broadcast(const struct shape *shape, double bytes)
{
    if (is_open_mpi(shape, 2))
        return open_mpi(shape, open_mpi_bcast(shape->size, bytes), DOUBLED, bytes, linear(shape, bytes));
    return least_broadcast(shape, bytes);
}

/* A reduce-scatter by halving, after which the pieces come together as in `then`. What crosses is as if each part did once
 * in each half. With sites in turns more does, but MPICH 5 took no longer than this. */
static double halved(const struct shape *shape, double bytes, struct crossings then)
{
    double over_link = rated_bytes(shape, bytes, 2 * bytes * (shape->sites - 1) / shape->sites);
    return latency_and_bytes(shape, 2 * steps_of(shape->size), crossings_sum(shape->doubling, then), over_link);
}

/* MPICH's reductions of more bytes begin with a reduce-scatter, if the operation is one of MPI's. */
#define MPICH_SHORT_BYTES 2048

static double reduce(const struct shape *shape, double bytes)
{
    if (shape->family == FAMILY_MPICH && bytes > MPICH_SHORT_BYTES && !shape->is_ordered)
        return halved(shape, bytes, shape->tree[IN_ORDER]);
    if (is_open_mpi(shape, 2)) {
        double in_turn = one_by_one(shape, bytes);
        double chosen = open_mpi(shape, open_mpi_reduce(shape->size, bytes), IN_ORDER, bytes, in_turn);
        return shape->is_ordered ? least(chosen, in_turn) : chosen;
    }
    double all = least_broadcast(shape, bytes);
    return shape->family != FAMILY_MPICH && shape->size < 8 ? least(all, one_by_one(shape, bytes)) : all;
}

static double allreduce(const struct shape *shape, double bytes)
{
    int steps = steps_of(shape->size);
    double doubling = in_steps_of_all(shape, steps, shape->doubling, bytes);
    if (bytes <= 1024)
        return doubling;
    double halving = halved(shape, bytes, shape->doubling);
    if (shape->family == FAMILY_MPICH)
        return bytes > MPICH_SHORT_BYTES && !shape->is_ordered ? halving : doubling;
    double ring = latency_and_bytes(shape, 2 * (shape->size - 1), crossings_sum(shape->ring, shape->ring), 2 * bytes);
    return least(doubling, least(halving, ring));
}

/* Open MPI has a binomial tree below so many bytes. Each block counts once, though it may cross several times. */
static double to_or_from_root(const struct shape *shape, double bytes, double open_mpi_binomial_below)
{
    double tree = latency_and_bytes(
        shape, steps_of(shape->size), shape->tree[IN_ORDER],
        rated_bytes(shape, bytes * shape->smallest, bytes * (shape->size - shape->largest)));
    if (shape->family == FAMILY_MPICH || (is_open_mpi(shape, 8) && bytes < open_mpi_binomial_below))
        return tree;
    return least(tree, linear(shape, bytes));
}

/* A fit: what a Scatter of large blocks takes beyond the estimate, whose root sends to all ranks at once, so that the
 * queue before its link overflows. Fitted to rows of `make bench-coll`: Open MPI 4, 256 KiB to 4 MiB, eight ranks on four
 * emulated sites, 10.6 ms and 200 Mb/s apart, took 1.08 to 1.28 of the estimate. */
#define ALL_AT_ONCE 1.15

static double scatter(const struct shape *shape, double bytes)
{
    double all = to_or_from_root(shape, bytes, shape->size < 32 ? 16384 : 512);
    return shape->family == FAMILY_OPENMPI && shape->shared_links && bytes > EAGER_BYTES ? ALL_AT_ONCE * all : all;
}

/* One of the ring's crossings is made so often, that of the average path. */
static struct crossings repeated(const struct shape *shape, double times)
{
    struct crossings ring = shape->ring;
    double part = times / ring.number;
    return (struct crossings){ ring.latency * part, ring.bytes * part, (int)times, 0 };
}

/* Every rank hands a block to the next one in each step. A large block asks it, and is gone a round trip later. */
static double ring_allgather(const struct shape *shape, double bytes)
{
    int steps = shape->size - 1;
    if (bytes <= EAGER_BYTES)
        return latency_and_bytes(shape, steps, shape->ring, bytes * shape->size);
    struct crossings crossings = repeated(shape, steps);
    double over_link = rated_bytes(shape, bytes, bytes * shape->ring.number / shape->sites);
    return crossings.latency * shape->wan_rtt_seconds + crossings.bytes * over_link / shape->wan_bytes_per_second +
           steps * MESSAGE_SECONDS;
}

/* Each rank swaps two blocks with the neighbour on one side, then with the one on the other side. Where few neighbours
 * are at different sites, those cross in every other step. */
static double neighbour_allgather(const struct shape *shape, double bytes)
{
    int steps = shape->size / 2;
    int few = 2 * shape->ring.number <= shape->size;
    double pairs = few ? shape->ring.number : steps;
    return in_shared_steps(shape, steps, repeated(shape, few ? steps / 2 : steps), 2 * bytes,
                           2 * bytes * 2 * pairs / shape->sites);
}

static double allgather(const struct shape *shape, double bytes)
{
    int steps = steps_of(shape->size);
    int is_known = is_open_mpi(shape, 2);
    enum pattern pattern = is_known ? open_mpi_allgather(shape->size, bytes) : OTHER;
    if (pattern != OTHER)
        return pattern == RING ? ring_allgather(shape, bytes) : neighbour_allgather(shape, bytes);
    double all = bytes * shape->size;
    int disseminates = shape->dissemination.latency < shape->doubling.latency;
    double blocks = disseminates ? shape->dissemination_blocks : shape->doubling_blocks;
    double over_link = rated_bytes(shape, all / 2, blocks * bytes);
    double doubling = latency_and_bytes(shape, steps, fewer(shape->doubling, shape->dissemination), over_link);
    /* The last message is half of all. It crosses where the ranks of each site follow one another. */
    if (shape->contiguous && all / 2 > EAGER_BYTES && over_link <= EAGER_BYTES * steps)
        doubling += shape->wan_rtt_seconds;
    return is_known ? doubling : least(doubling, latency_and_bytes(shape, shape->size - 1, shape->ring,
                                                       rated_bytes(shape, all, shape->ring.link * all)));
}

static double reduce_scatter(const struct shape *shape, double bytes)
{
    /* Its first step is the farthest one. */
    double over_link = rated_bytes(shape, bytes / 2, bytes * shape->doubling_blocks / shape->size);
    double halving = latency_and_bytes(shape, steps_of(shape->size), shape->doubling, over_link);
    double ring = latency_and_bytes(shape, shape->size - 1, shape->ring, bytes);
    return least(halving, ring);
}

static double alltoall(const struct shape *shape, double bytes)
{
    double block = bytes / shape->size;
    double bruck = in_steps_of_all(shape, steps_of(shape->size), shape->dissemination, bytes / 2);
    double over_link = block * shape->smallest * (shape->size - shape->smallest);
    double at_once = crossing_seconds(shape, block, over_link) + (shape->size - 1) * MESSAGE_SECONDS;
    if (is_open_mpi(shape, 16) && block < 512)
        return bruck;
    if (shape->family == FAMILY_MPICH && block <= 256 && shape->size >= 8)
        return bruck;
    return least(bruck, at_once);
}

/* Open MPI's few ranks tell one of them, and hear of it. From 64 ranks on it has further ones, which cross as often at
 * least. */
static double barrier(const struct shape *shape)
{
    if (is_open_mpi(shape, 4) && shape->size < 8)
        return 2 * linear(shape, 0);
    return in_steps(shape, steps_of(shape->size), fewer(shape->doubling, shape->dissemination), 0);
}

double native_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    switch (operation) {
    case OP_BARRIER: return barrier(shape);
    case OP_BCAST: return broadcast(shape, bytes);
    case OP_REDUCE: return reduce(shape, bytes);
    case OP_ALLREDUCE: return allreduce(shape, bytes);
    case OP_GATHER: return to_or_from_root(shape, bytes, INFINITY);
    case OP_SCATTER: return scatter(shape, bytes);
    case OP_ALLGATHER: return allgather(shape, bytes);
    case OP_REDUCE_SCATTER: return reduce_scatter(shape, bytes);
    case OP_ALLTOALL: return alltoall(shape, bytes);
    case OPERATIONS: break;
    }
    return 0;
}
