#include "choice.h"

#include <string.h>

#include "cost.h"

/* Estimates nearer to each other than this are the same. */
#define CLEARLY 0.9

/* What reductions of large messages take beyond the estimate, measured over four sites: several
 * senders fill the queue before one site's link. Less so in pieces for each rank. */
#define INTO_ONE 1.35
#define SCATTERED_INTO_ONE 1.1

/* Slower by less than this doesn't matter, where much may be gained. */
#define NOT_SLOWER 1.05

static const char *const operation_names[OPERATIONS] = {
    "barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "reduce_scatter", "alltoall",
};

static const char *const algorithm_names[ALGORITHMS] = { "native", "leaders", "segments", "lanes", "scattered", "chain" };

const char *operation_name(enum operation operation)
{
    return (unsigned)operation < OPERATIONS ? operation_names[operation] : "?";
}

const char *algorithm_name(enum algorithm algorithm)
{
    return (unsigned)algorithm < ALGORITHMS ? algorithm_names[algorithm] : "?";
}

int asked_algorithm(const char *name)
{
    if (name == NULL || *name == '\0' || strcmp(name, "auto") == 0)
        return CHOICE_AUTO;
    for (int a = 0; a < ALGORITHMS; a++)
        if (strcmp(name, algorithm_names[a]) == 0)
            return a;
    return -2;
}

int has_algorithm(enum operation operation, enum algorithm algorithm)
{
    switch (algorithm) {
    case NATIVE:
    case LEADERS:
        return 1;
    case SEGMENTS:
    case CHAIN:
        return operation == OP_BCAST || operation == OP_REDUCE;
    case LANES:
        return operation == OP_BCAST || operation == OP_REDUCE || operation == OP_ALLREDUCE ||
               operation == OP_ALLGATHER || operation == OP_REDUCE_SCATTER;
    case SCATTERED:
        return operation == OP_BCAST || operation == OP_REDUCE || operation == OP_ALLREDUCE;
    case ALGORITHMS:
        break;
    }
    return 0;
}

/* SCATTERED goes directly between all sites, which would fill the links between wider places. CHAIN
 * would cross between those more than once. */
int offers(enum operation operation, enum algorithm algorithm, const struct shape *shape)
{
    int is_flat = algorithm == SCATTERED || algorithm == CHAIN;
    return has_algorithm(operation, algorithm) && !(is_flat && shape->levels > 1);
}

/* Small enough that the first is through the site while the second crosses and that MPIs don't ask
 * the receiver first, and not more than 64 of them, since each is a message to wait for. */
size_t segment_bytes(size_t bytes)
{
    size_t least = 60 * 1024, share = bytes / 64 + 1;
    return share > least ? share : least;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* From one rank of a site to all, or, as a reduction, from all to one. */
static double site_tree(const struct shape *shape, double bytes)
{
    int steps = steps_of(shape->largest);
    double binomial = steps * lan_seconds(shape, bytes);
    double scattered = 2 * steps * lan_seconds(shape, 0) + 2 * bytes / shape->lan_bytes_per_second;
    return smaller(binomial, scattered);
}

/* All of `bytes` go between one rank of a site and the others, each of whom has a share. */
static double site_shares(const struct shape *shape, double bytes)
{
    if (shape->largest == 1)
        return 0;
    return steps_of(shape->largest) * lan_seconds(shape, 0) + bytes / shape->lan_bytes_per_second;
}

/* One rank of each site sends so much directly to that of every other one, whatever the levels. */
static double to_others(const struct shape *shape, double bytes)
{
    return crossing_seconds(shape, bytes, bytes * (shape->sites - 1));
}

/* Up to those who stand for the subsets of the widest level, who swap; then down again. */
static double up_and_down(const struct shape *shape, double bytes, int lanes)
{
    return levels_seconds(shape, 0, bytes, lanes) + levels_seconds(shape, 1, bytes, lanes);
}

static double leaders_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    double site_bytes = bytes * shape->largest;
    switch (operation) {
    case OP_BARRIER:
        return 2 * site_tree(shape, 0) + up_and_down(shape, 0, 1);
    case OP_BCAST:
    case OP_REDUCE:
        return site_tree(shape, bytes) + levels_seconds(shape, 0, bytes, 1);
    case OP_ALLREDUCE:
        return 2 * site_tree(shape, bytes) + up_and_down(shape, bytes, 1);
    case OP_GATHER:
    case OP_SCATTER:
        return site_shares(shape, site_bytes) + gathered_seconds(shape, bytes) +
               shape->size * bytes / shape->lan_bytes_per_second;
    case OP_ALLGATHER:
        return site_shares(shape, site_bytes) + gathered_seconds(shape, bytes) +
               levels_seconds(shape, 1, shape->size * bytes, 1) + site_tree(shape, shape->size * bytes);
    case OP_REDUCE_SCATTER: {
        double part = bytes * shape->largest / shape->size;
        return site_tree(shape, bytes) + to_others(shape, part) + site_shares(shape, part);
    }
    case OP_ALLTOALL: {
        double across = site_bytes * shape->largest / shape->size;
        return 2 * site_shares(shape, site_bytes) + to_others(shape, across);
    }
    case OPERATIONS:
        break;
    }
    return 0;
}

/* The crossing of all segments and the way of the last within the site, or, where sites are
 * slower, the crossing of the first and the way of all. */
static double segments_seconds(const struct shape *shape, double bytes)
{
    double segment = smaller(bytes, segment_bytes((size_t)bytes));
    double count = segment > 0 ? bytes / segment : 1;
    double within = site_tree(shape, segment), cross = 0;
    for (int l = 0; l < shape->levels; l++) {
        const struct level *level = &shape->level[l];
        double over_link = rated_bytes(shape, segment, segment * (level->subsets - 1));
        double seconds = over_link / level->bytes_per_second + MESSAGE_SECONDS;
        /* One rank may send at all levels. */
        if (shape->shared_links)
            cross += seconds;
        else
            cross = seconds > cross ? seconds : cross;
    }
    double slower = within > cross ? within : cross;
    return levels_seconds(shape, 0, segment, 1) + (count - 1) * slower + within;
}

static double lanes_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    int lanes = shape->largest < LANES_MAX ? shape->largest : LANES_MAX;
    int others = shape->sites - 1;   /* These two go directly, whatever the levels. */
    switch (operation) {
    case OP_BCAST:
    case OP_REDUCE:
        return 2 * site_shares(shape, bytes) + levels_seconds(shape, 0, bytes, lanes) + lanes * MESSAGE_SECONDS;
    case OP_ALLREDUCE:
        return 2 * site_shares(shape, bytes) + up_and_down(shape, bytes, lanes) + lanes * MESSAGE_SECONDS;
    case OP_ALLGATHER:
        return crossing_seconds(shape, bytes, bytes * shape->largest * others) +
               site_shares(shape, shape->size * bytes) + shape->size * MESSAGE_SECONDS;
    case OP_REDUCE_SCATTER:
        return site_shares(shape, bytes) +
               crossing_seconds(shape, bytes / shape->size, bytes * shape->largest * others / shape->size) +
               shape->size * MESSAGE_SECONDS;
    case OP_BARRIER:
    case OP_GATHER:
    case OP_SCATTER:
    case OP_ALLTOALL:
    case OPERATIONS:
        break;
    }
    return leaders_seconds(operation, shape, bytes);
}

/* One half takes a piece to or from each rank, the other one brings the pieces together. */
static double scattered_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    double piece = bytes / shape->size;
    double together = lanes_seconds(OP_ALLGATHER, shape, piece), apart = lanes_seconds(OP_REDUCE_SCATTER, shape, bytes);
    switch (operation) {
    case OP_BCAST: return leaders_seconds(OP_SCATTER, shape, piece) + together;
    case OP_REDUCE: return SCATTERED_INTO_ONE * (apart + leaders_seconds(OP_GATHER, shape, piece));
    default: return apart + together;
    }
}

/* The way of the first piece over all sites, and then all others after it. */
static double chain_seconds(const struct shape *shape, double bytes)
{
    double piece = smaller(bytes, (double)segment_bytes((size_t)bytes));
    double count = piece > 0 ? bytes / piece : 1;
    double cross = MESSAGE_SECONDS + piece / shape->wan_bytes_per_second;
    double within = site_tree(shape, bytes / CHAIN_PARTS);
    double first = (shape->sites - 1) * (cross + shape->wan_rtt_seconds / 2), others = (count - 1) * cross;
    return first + (others > CHAIN_PARTS * within ? others : CHAIN_PARTS * within) + within;
}

/* A factor for what sends the whole from each site to the root's. */
static double into_one(enum operation operation, const struct shape *shape, double bytes)
{
    return operation == OP_REDUCE && shape->shared_links && shape->sites > 2 && bytes > EAGER_BYTES ? INTO_ONE : 1;
}

double predicted_seconds(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes)
{
    double more = into_one(operation, shape, (double)bytes);
    switch (algorithm) {
    case NATIVE: return native_seconds(operation, shape, (double)bytes);
    case LEADERS: return more * leaders_seconds(operation, shape, (double)bytes);
    case SEGMENTS: return more * segments_seconds(shape, (double)bytes);
    case LANES: return more * lanes_seconds(operation, shape, (double)bytes);
    case SCATTERED: return scattered_seconds(operation, shape, (double)bytes);
    case CHAIN: return chain_seconds(shape, (double)bytes);
    case ALGORITHMS: break;
    }
    return 0;
}

static int is_reduction(enum operation operation)
{
    return operation == OP_REDUCE || operation == OP_ALLREDUCE || operation == OP_REDUCE_SCATTER;
}

/* Ranks of a site that don't follow one another can't be reduced in rank order by it. */
static int only_native(enum operation operation, const struct shape *shape, int commutative)
{
    return shape->sites < 2 || (is_reduction(operation) && !commutative && !shape->contiguous);
}

/* CHAIN combines parts in another order than that of ranks. */
static int takes(enum operation operation, enum algorithm algorithm, const struct shape *shape, int commutative)
{
    return offers(operation, algorithm, shape) && (algorithm != CHAIN || commutative || !is_reduction(operation));
}

/* What an algorithm takes if the links are shared, and if they aren't. */
struct times {
    double shared, apart;
};

static struct times times_of(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes)
{
    struct shape shared = *shape, apart = *shape;
    shared.shared_links = 1;
    apart.shared_links = 0;
    return (struct times){ predicted_seconds(operation, algorithm, &shared, bytes),
                           predicted_seconds(operation, algorithm, &apart, bytes) };
}

/* One connection mostly fills its link, so that shared links count three times as much. */
static int clearly_faster(struct times a, struct times b)
{
    double shared = a.shared / b.shared, apart = a.apart / b.apart;
    return shared * shared * shared * apart < CLEARLY * CLEARLY * CLEARLY * CLEARLY;
}

/* Each must be clearly faster on the whole than those before it, which send fewer messages, and
 * not slower than the native one in either case. */
enum algorithm choose(enum operation operation, const struct shape *shape, size_t bytes, int commutative)
{
    if (only_native(operation, shape, commutative))
        return NATIVE;
    enum algorithm best = NATIVE;
    struct times native = times_of(operation, NATIVE, shape, bytes), time = native;
    for (int a = LEADERS; a < ALGORITHMS; a++) {
        /* Measured to be faster than Open MPI's own only: MPICH's ranks poll, and in the lab, where they
         * share processors, each piece waits for them. */
        if (!takes(operation, (enum algorithm)a, shape, commutative) || (a == CHAIN && shape->family != FAMILY_OPENMPI))
            continue;
        struct times other = times_of(operation, (enum algorithm)a, shape, bytes);
        if (other.shared < NOT_SLOWER * native.shared && other.apart < NOT_SLOWER * native.apart &&
            clearly_faster(other, time)) {
            best = (enum algorithm)a;
            time = other;
        }
    }
    return best;
}

enum algorithm choose_asked(enum operation operation, const struct shape *shape, size_t bytes, int commutative,
                            int asked)
{
    if (asked < 0 || asked >= ALGORITHMS)
        return choose(operation, shape, bytes, commutative);
    if (asked == NATIVE || only_native(operation, shape, commutative))
        return NATIVE;
    return takes(operation, (enum algorithm)asked, shape, commutative) ? (enum algorithm)asked : LEADERS;
}

/* Both MPIs send these directly between the two ranks, so each piece crosses once already. */
enum algorithm choose_uneven(enum operation operation, const struct shape *shape, int asked)
{
    (void)operation;
    if (asked <= NATIVE || asked >= ALGORITHMS || shape->sites < 2)
        return NATIVE;
    return LEADERS;
}
