/* What the library's own algorithms take. */
#include "cost.h"

/* Two fits: what a Reduce of large messages takes beyond the estimate, since several senders fill the queue before
 * one site's link. They were fitted to rows of `make bench-coll`: Open MPI 4, 256 KiB to 4 MiB, eight ranks on four
 * emulated sites, 10.6 ms and 200 Mb/s apart. There a Reduce of 1 MiB by pieces for each rank took 1.26 to 1.30 of
 * the native one's time; from all sites into one, in whole, it took longer still. Other rates, queues and numbers of
 * senders weren't measured. */
#define SCATTERED_INTO_ONE 1.4
#define INTO_ONE 1.35

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* How long a rank that polls keeps a processor that another one waits for. Those of the MPI's own algorithms wait as
 * well, so that it is only a part of a slice of the scheduler. */
#define TURN_SECONDS 0.002

/* A rank that has no processor can't hand anything on. Ranks that poll while they wait keep theirs until the
 * scheduler takes it from them. MPICH's ranks always poll. Open MPI's yield where its launcher knows of more ranks
 * than slots. */
static double turn_seconds(const struct shape *shape)
{
    return shape->is_oversubscribed && shape->family != FAMILY_OPENMPI ? TURN_SECONDS : 0;
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
    return own_crossing_seconds(shape, bytes, bytes * (shape->sites - 1));
}

/* Up to those who stand for the subsets of the widest level, who swap; then down again. */
static double up_and_down(const struct shape *shape, double bytes, int lanes)
{
    return levels_seconds(shape, 0, bytes, lanes) + levels_seconds(shape, 1, bytes, lanes);
}

/* A factor for what sends the whole from each of several sites, or of those that stand for others, to the root's. */
static double into_one(enum operation operation, const struct shape *shape, double bytes)
{
    return operation == OP_REDUCE && shape->shared_links && shape->sites > 2 && bytes > EAGER_BYTES ? INTO_ONE : 1;
}

/* A fit: round trips that an Allreduce takes beyond the estimate if each site sends several others more at once than its
 * link and the queue before it hold, which are taken to be alike. Trunks to several sites don't share a pace, and the tail
 * is lost. Fitted to `make bench-coll`: 256 KiB over three sites by leaders, 10.6 ms apart, Open MPI 4 and MPICH 5: 62 ms,
 * of an estimate of 27. Other sizes and rates weren't measured. */
#define OVERRUN_ROUND_TRIPS 3

static double overrun_seconds(const struct shape *shape, double bytes)
{
    int others = shape->level[0].subsets - 1;
    double held = shape->wan_rtt_seconds * shape->wan_bytes_per_second;
    int is_lost = shape->shared_links && others > 1 && bytes > EAGER_BYTES && bytes * others > held;
    return is_lost ? OVERRUN_ROUND_TRIPS * shape->wan_rtt_seconds : 0;
}

double leaders_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    double site_bytes = bytes * shape->largest;
    switch (operation) {
    case OP_BARRIER:
        return 2 * site_tree(shape, 0) + up_and_down(shape, 0, 1);
    case OP_BCAST:
    case OP_REDUCE:
        return into_one(operation, shape, bytes) * (site_tree(shape, bytes) + levels_seconds(shape, 0, bytes, 1));
    case OP_ALLREDUCE:
        return 2 * site_tree(shape, bytes) + overrun_seconds(shape, bytes) + up_and_down(shape, bytes, 1);
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
double segments_seconds(enum operation operation, const struct shape *shape, double bytes)
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
    return into_one(operation, shape, bytes) * (levels_seconds(shape, 0, segment, 1) + (count - 1) * slower + within);
}

/* Each rank sends `bytes` to one of each other site. */
static double together_seconds(const struct shape *shape, double bytes)
{
    return own_crossing_seconds(shape, bytes, bytes * shape->largest * (shape->sites - 1)) +
           site_shares(shape, shape->size * bytes) + shape->size * MESSAGE_SECONDS;
}

double lanes_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    int lanes = shape->largest < LANES_MAX ? shape->largest : LANES_MAX;
    int others = shape->sites - 1;   /* These two go directly, whatever the levels. */
    switch (operation) {
    case OP_BCAST:
    case OP_REDUCE:
        return into_one(operation, shape, bytes) *
               (2 * site_shares(shape, bytes) + levels_seconds(shape, 0, bytes, lanes) + lanes * MESSAGE_SECONDS);
    case OP_ALLREDUCE:
        return 2 * site_shares(shape, bytes) + overrun_seconds(shape, bytes) + up_and_down(shape, bytes, lanes) +
               lanes * MESSAGE_SECONDS;
    case OP_ALLGATHER:
        return together_seconds(shape, bytes);
    case OP_REDUCE_SCATTER:
        return site_shares(shape, bytes) +
               own_crossing_seconds(shape, bytes / shape->size, bytes * shape->largest * others / shape->size) +
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
double scattered_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    double piece = bytes / shape->size;
    double together = together_seconds(shape, piece), apart = lanes_seconds(OP_REDUCE_SCATTER, shape, bytes);
    switch (operation) {
    case OP_BCAST: return leaders_seconds(OP_SCATTER, shape, piece) + together + turn_seconds(shape);
    case OP_REDUCE: return SCATTERED_INTO_ONE * (apart + leaders_seconds(OP_GATHER, shape, piece)) + turn_seconds(shape);
    default: return apart + together;
    }
}

/* Two crossings, in which the root's link carries all bytes once, and the last pieces of all, which cross once
 * more. A site's own share spreads within it while the others' shares come. */
double relayed_seconds(enum operation operation, const struct shape *shape, double bytes)
{
    int others = shape->sites - 1, blocks = relayed_blocks((size_t)bytes, shape->sites);
    double piece = bytes / blocks / others, rate = shape->wan_bytes_per_second;
    double way = MESSAGE_SECONDS + shape->wan_rtt_seconds / 2;
    double cross = way + rated_bytes(shape, bytes / others, bytes) / rate + blocks * others * MESSAGE_SECONDS;
    if (others > 1)
        cross += way + rated_bytes(shape, piece, piece * others) / rate;
    double within = site_tree(shape, bytes / RELAYED_PARTS), more = (RELAYED_PARTS - 1) * within - way;
    (void)operation;
    return cross + within + (more > 0 ? more : 0) + turn_seconds(shape);
}
