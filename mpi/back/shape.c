/* How the ranks of a communicator fall into sites, and how often the MPI's own algorithms would
 * cross between them, for a given order of ranks. */
#include "choice.h"

#include <stdlib.h>
#include <string.h>

#include "paths.h"

static const struct crossings none = { 0, 0, 0, 0 };

/* A message between two ranks. */
static struct crossings crossing(const struct shape *shape, const struct places *places, int a, int b)
{
    int from = places->site_of[a], to = places->site_of[b];
    if (from == to)
        return none;
    struct path path = path_between(places->topology, places->site[from], places->site[to]);
    return (struct crossings){
        path.rtt_seconds / shape->wan_rtt_seconds, shape->wan_bytes_per_second / path.bytes_per_second, 1, 0,
    };
}

struct crossings crossings_sum(struct crossings a, struct crossings b)
{
    return (struct crossings){ a.latency + b.latency, a.bytes + b.bytes, a.number + b.number, a.link + b.link };
}

/* The one that takes longer, by its latency first. */
static struct crossings later(struct crossings a, struct crossings b)
{
    return b.latency > a.latency || (b.latency == a.latency && b.bytes > a.bytes) ? b : a;
}

/* What sites' links carry, as so many messages at the worst rate. */
struct loads {
    float out[SITES_MAX], in[SITES_MAX];
};

static void loads_clear(struct loads *loads, int sites)
{
    memset(loads->out, 0, (size_t)sites * sizeof *loads->out);
    memset(loads->in, 0, (size_t)sites * sizeof *loads->in);
}

/* `blocks` cross in one message, or stay where both ranks are at one site. */
static void loads_add(struct loads *loads, const struct places *places, int from, int to, struct crossings message,
                      double blocks)
{
    loads->out[places->site_of[from]] += (float)(blocks * message.bytes);
    loads->in[places->site_of[to]] += (float)(blocks * message.bytes);
}

/* The busiest link, in one direction. */
static double loads_most(const struct loads *loads, int sites)
{
    float most = 0;
    for (int s = 0; s < sites; s++) {
        float busier = loads->out[s] > loads->in[s] ? loads->out[s] : loads->in[s];
        most = busier > most ? busier : most;
    }
    return most;
}

/* Who a rank of a tree has its message from. Both are counted from the root, which is 0. */
typedef int parent_of(int rank);

/* Without the lowest bit, or without the highest. */
static int in_order(int rank)
{
    return rank & (rank - 1);
}

static int doubled(int rank)
{
    int bit = 1;
    while (bit * 2L <= rank)
        bit *= 2;
    return rank - bit;
}

/* Without the lowest digit that isn't 0, to the base of 4. */
static int of_four(int rank)
{
    int digit = 1;
    while (rank % (4L * digit) == 0)
        digit *= 4;
    return rank - (int)(rank % (4L * digit));
}

/* The levels hold 1, 2, 4, ... ranks, and the ranks of one level take those of the level above in turns. */
static int of_two(int rank)
{
    int above = 1;   /* ranks at the level above, of which the first is above - 1 */
    while (4L * above - 1 <= rank)
        above *= 2;
    return above - 1 + (rank - (above - 1)) % above;
}

static parent_of *const parents[TREES] = { [IN_ORDER] = in_order, [DOUBLED] = doubled, [OF_FOUR] = of_four, [OF_TWO] = of_two };

/* Of ranks that are counted from the root. */
static int rank_of(const struct places *places, int root, int from_root)
{
    int left = places->size - root;
    return from_root < left ? from_root + root : from_root - left;
}

static struct crossings edge(const struct shape *shape, const struct places *places, int root, int a, int b)
{
    return crossing(shape, places, rank_of(places, root, a), rank_of(places, root, b));
}

/* The most crossings on a path between a rank and the root, and what crosses over one link at all. A parent is less than
 * its children. `path` and `children`: [size] scratch. */
static struct crossings tree(const struct shape *shape, const struct places *places, int root, parent_of *parent,
                             struct crossings *path, int *children, int *far_children)
{
    struct crossings most = none;
    struct loads loads;
    loads_clear(&loads, places->sites);
    memset(children, 0, (size_t)places->size * sizeof *children);
    *far_children = 0;
    path[0] = none;
    for (int r = 1; r < places->size; r++) {
        int from = parent(r);
        struct crossings message = edge(shape, places, root, from, r);
        loads_add(&loads, places, rank_of(places, root, from), rank_of(places, root, r), message, 1);
        path[r] = crossings_sum(path[from], message);
        most = later(most, path[r]);
        children[from] += message.number;
        *far_children = children[from] > *far_children ? children[from] : *far_children;
    }
    most.link = loads_most(&loads, places->sites);
    return most;
}

int shape_root(struct shape *shape, const struct places *places, int root)
{
    if (shape->tree_root == root)
        return 0;
    struct crossings *path = malloc((size_t)places->size * sizeof *path);
    int *children = malloc((size_t)places->size * sizeof *children);
    if (!path || !children) {
        free(path);
        free(children);
        return -1;
    }
    shape->tree_root = root;
    for (int t = 0; t < TREES; t++)
        shape->tree[t] = tree(shape, places, root, parents[t], path, children, &shape->far_children[t]);
    free(path);
    free(children);
    shape->star = none;
    for (int r = 1; r < places->size; r++)
        shape->star = crossings_sum(shape->star, edge(shape, places, root, r, 0));
    return 0;
}

static struct crossings latest(const struct crossings *of, int size)
{
    struct crossings most = none;
    for (int r = 0; r < size; r++)
        most = later(most, of[r]);
    return most;
}

/* Recursive doubling among the largest power of two of ranks; what is left over is folded
 * into neighbours first and served last, as both MPIs do. */
static struct crossings doubling(struct shape *shape, const struct places *places, struct crossings *now,
                                 struct crossings *next)
{
    int size = places->size, power = 1;
    while (power * 2 <= size)
        power *= 2;
    int extra = size - power;
    struct loads loads;
    loads_clear(&loads, places->sites);
    memset(now, 0, (size_t)size * sizeof *now);
    for (int i = 0; i < extra; i++) {
        now[2 * i + 1] = crossing(shape, places, 2 * i, 2 * i + 1);
        loads_add(&loads, places, 2 * i, 2 * i + 1, now[2 * i + 1], 1);
        loads_add(&loads, places, 2 * i + 1, 2 * i, now[2 * i + 1], size);
    }
#define REAL_RANK(n) ((n) < extra ? 2 * (n) + 1 : (n) + extra)
    for (int step = 1; step < power; step *= 2) {
        for (int n = 0; n < power; n++) {
            int a = REAL_RANK(n), b = REAL_RANK(n ^ step);
            struct crossings message = crossing(shape, places, a, b);
            next[a] = later(now[a], crossings_sum(now[b], message));
            loads_add(&loads, places, b, a, message, (double)step * size / power);
        }
        for (int n = 0; n < power; n++)
            now[REAL_RANK(n)] = next[REAL_RANK(n)];
    }
#undef REAL_RANK
    for (int i = 0; i < extra; i++)
        now[2 * i] = crossings_sum(now[2 * i + 1], crossing(shape, places, 2 * i, 2 * i + 1));
    shape->doubling_blocks = loads_most(&loads, places->sites);
    return latest(now, size);
}

static struct crossings dissemination(struct shape *shape, const struct places *places, struct crossings *now,
                                      struct crossings *next)
{
    int size = places->size;
    struct loads loads;
    loads_clear(&loads, places->sites);
    memset(now, 0, (size_t)size * sizeof *now);
    for (long step = 1; step < size; step *= 2) {
        long blocks = step < size - step ? step : size - step;
        for (int r = 0; r < size; r++) {
            int from = (int)((r + size - step) % size);
            struct crossings message = crossing(shape, places, r, from);
            next[r] = later(now[r], crossings_sum(now[from], message));
            loads_add(&loads, places, from, r, message, (double)blocks);
        }
        memcpy(now, next, (size_t)size * sizeof *now);
    }
    shape->dissemination_blocks = loads_most(&loads, places->sites);
    return latest(now, size);
}

static struct crossings without(struct crossings all, struct crossings one)
{
    return (struct crossings){ all.latency - one.latency, all.bytes - one.bytes, all.number - one.number, all.link };
}

/* A piece goes over all edges of the ring but one. */
static void ring(struct shape *shape, const struct places *places)
{
    struct crossings all = none, most = none, least = crossing(shape, places, 0, places->size - 1);
    struct loads loads;
    loads_clear(&loads, places->sites);
    for (int r = 0; r < places->size; r++) {
        struct crossings next = crossing(shape, places, r, (r + 1) % places->size);
        loads_add(&loads, places, r, (r + 1) % places->size, next, 1);
        all = crossings_sum(all, next);
        most = later(most, next);
        least = next.latency < least.latency ? next : least;
    }
    all.link = loads_most(&loads, places->sites);
    shape->ring = without(all, least);
    shape->chain = without(all, most);
}

/* Counts each site's ranks into `ranks`. Returns whether those of each follow one another. */
static int count_sites(struct shape *shape, const struct places *places, int *ranks)
{
    int runs = 1;
    const int *site_of = places->site_of;
    shape->size = places->size;
    shape->sites = places->sites;
    memset(ranks, 0, (size_t)places->sites * sizeof *ranks);
    for (int r = 0; r < places->size; r++) {
        ranks[site_of[r]]++;
        runs += r > 0 && site_of[r] != site_of[r - 1];
    }
    shape->smallest = shape->largest = ranks[0];
    for (int s = 1; s < shape->sites; s++) {
        shape->smallest = ranks[s] < shape->smallest ? ranks[s] : shape->smallest;
        shape->largest = ranks[s] > shape->largest ? ranks[s] : shape->largest;
    }
    return runs == shape->sites;
}

int shape_make(struct shape *shape, const struct places *places)
{
    int *ranks = malloc((size_t)places->sites * sizeof *ranks);
    struct crossings *now = malloc(2 * (size_t)places->size * sizeof *now);
    int rc = -1;
    if (ranks && now) {
        struct crossings *next = now + places->size;
        shape->contiguous = count_sites(shape, places, ranks);
        rc = shape_paths(shape, places, ranks);
        shape->tree_root = -1;
        rc = rc == 0 ? shape_root(shape, places, 0) : rc;
        shape->doubling = doubling(shape, places, now, next);
        shape->dissemination = dissemination(shape, places, now, next);
        ring(shape, places);
    }
    free(ranks);
    free(now);
    return rc;
}
