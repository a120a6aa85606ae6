#include "choice.h"

#include <string.h>

#include "cost.h"

/* Neither is measured. Estimates that are nearer to each other than a tenth are the same: they know of no
 * processors, queues or losses, and an algorithm of more messages is to be worth them. */
#define CLEARLY 0.9

/* Slower by less than this doesn't matter, where much may be gained: what the benchmark of collectives allows. */
#define NOT_SLOWER 1.05

static const char *const operation_names[OPERATIONS] = {
    "barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "reduce_scatter", "alltoall",
};

/* The operations that have an algorithm. */
enum {
    ALL = (1 << OPERATIONS) - 1,
    BCAST = 1 << OP_BCAST,
    REDUCE = 1 << OP_REDUCE,
    ALLREDUCE = 1 << OP_ALLREDUCE,
    GATHER = 1 << OP_GATHER,
    SCATTER = 1 << OP_SCATTER,
    ALLGATHER = 1 << OP_ALLGATHER,
    REDUCE_SCATTER = 1 << OP_REDUCE_SCATTER,
    ALLTOALL = 1 << OP_ALLTOALL,
};

static const struct {
    const char *name, *reason;
    unsigned operations, traits;
} table[ALGORITHMS] = {
#define X(value, name, operations, traits, reason) { #name, reason, operations, traits },
    ALGORITHMS_OF(X)
#undef X
};

static double (*const estimate[ALGORITHMS])(enum operation operation, const struct shape *shape, double bytes) = {
#define X(value, name, ...) [value] = name##_seconds,
    ESTIMATED_OF(X)
#undef X
};

const char *operation_name(enum operation operation)
{
    return (unsigned)operation < OPERATIONS ? operation_names[operation] : "?";
}

const char *algorithm_name(enum algorithm algorithm)
{
    return (unsigned)algorithm < ALGORITHMS ? table[algorithm].name : "?";
}

const char *algorithm_reason(enum algorithm algorithm)
{
    return (unsigned)algorithm < ALGORITHMS ? table[algorithm].reason : "?";
}

int asked_algorithm(const char *name)
{
    if (name == NULL || *name == '\0' || strcmp(name, "auto") == 0)
        return CHOICE_AUTO;
    for (int a = 0; a < ALGORITHMS; a++)
        if (strcmp(name, table[a].name) == 0)
            return a;
    return -2;
}

int has_algorithm(enum operation operation, enum algorithm algorithm)
{
    return (unsigned)algorithm < ALGORITHMS && (table[algorithm].operations >> operation & 1);
}

int offers(enum operation operation, enum algorithm algorithm, const struct shape *shape)
{
    unsigned traits = table[algorithm].traits;
    return has_algorithm(operation, algorithm) && !(traits & UNEVEN) && !(traits & FLAT && shape->levels > 1);
}

/* Small enough that the first is through the site while the second crosses and that MPIs don't ask
 * the receiver first, and not more than 64 of them, since each is a message to wait for. */
size_t segment_bytes(size_t bytes)
{
    size_t least = 60 * 1024, share = bytes / 64 + 1;
    return share > least ? share : least;
}

/* The last pieces cross once all others have, so they are a thirty-second of a share, but not so small that messages
 * cost more than their bytes, nor so large that MPIs ask the receiver first, nor more than a rank can wait for. */
int relayed_blocks(size_t bytes, int sites)
{
    enum { LEAST = 4 * 1024, BLOCKS = 64, PIECES = 4096 };
    size_t others = (size_t)sites - 1, share = bytes / others, piece = share / 32;
    size_t most = others > PIECES / BLOCKS ? PIECES / others : BLOCKS;
    piece = piece < LEAST ? LEAST : piece > CUT_BYTES ? CUT_BYTES : piece;
    size_t blocks = share / piece + (share % piece > 0);
    blocks = blocks < most ? blocks : most;
    return blocks < 1 ? 1 : (int)blocks;
}

/* A block is a quarter of what fills a link for a crossing, over all connections that share it, but not so small that
 * messages cost more than their bytes, nor so large that MPIs ask the receiver first. What the path holds, and its queue
 * besides, need not be cut. */
int crossing_blocks(const struct shape *shape, size_t bytes, double connections, double messages)
{
    enum { LEAST = 4 * 1024, MESSAGES = 4096 };
    double filled = shape->wan_rtt_seconds / 2 * shape->wan_bytes_per_second, block = filled / 4 / connections;
    if ((double)bytes * connections <= 2 * filled)
        return 1;
    block = block < LEAST ? LEAST : block > CUT_BYTES ? CUT_BYTES : block;
    double blocks = (double)bytes / block + 1, most = MESSAGES / messages;
    blocks = blocks < most ? blocks : most;
    return blocks < 1 ? 1 : (int)blocks;
}

/* A rank of the smallest site may hear from several of each other one. */
int swapped_blocks(const struct shape *shape, size_t bytes)
{
    double others = shape->sites - 1;
    return crossing_blocks(shape, bytes, shape->largest * others, others * ((shape->largest - 1) / shape->smallest + 1));
}

double predicted_seconds(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes)
{
    return (unsigned)algorithm < ALGORITHMS && estimate[algorithm] ? estimate[algorithm](operation, shape, (double)bytes) : 0;
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

static int takes(enum operation operation, enum algorithm algorithm, const struct shape *shape, int commutative)
{
    return offers(operation, algorithm, shape) &&
           (!(table[algorithm].traits & REORDERS) || commutative || !is_reduction(operation));
}

/* What an algorithm takes if the links are shared, and if they aren't. */
struct times {
    double shared, apart;
};

static struct times times_of(enum operation operation, enum algorithm algorithm, const struct shape *shape, size_t bytes,
                             int commutative)
{
    struct shape shared = *shape, apart;
    shared.is_ordered = !commutative;
    apart = shared;
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
    struct times native = times_of(operation, NATIVE, shape, bytes, commutative), time = native;
    for (int a = LEADERS; a < ALGORITHMS; a++) {
        if (!takes(operation, (enum algorithm)a, shape, commutative))
            continue;
        struct times other = times_of(operation, (enum algorithm)a, shape, bytes, commutative);
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

/* All send blocks directly between their two ends, so that each crosses once already. MPICH has many cross at once.
 * Open MPI's MPI_Gatherv has the root receive one before it asks for the next one: a round trip for each large one. Its
 * MPI_Scatterv asks as well, but while the one before crosses. */
enum algorithm choose_uneven(enum operation operation, const struct shape *shape, int asked)
{
    int has_direct = has_algorithm(operation, DIRECT), waits = has_direct && shape->family == FAMILY_OPENMPI;
    if (shape->sites < 2 || asked == NATIVE || asked >= ALGORITHMS || (asked < 0 && !waits))
        return NATIVE;
    return asked < 0 || (asked == DIRECT && has_direct) ? DIRECT : LEADERS;
}
