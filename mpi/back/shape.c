/* How the ranks of a communicator fall into sites, and how often the MPI's own algorithms would
 * cross between them, for a given order of ranks. */
#include "choice.h"

#include <stdlib.h>
#include <string.h>

#include "paths.h"

static const struct crossings none = { 0, 0, 0 };

/* A message between two ranks. */
static struct crossings crossing(const struct shape *shape, const struct places *places, int a, int b)
{
    int from = places->site_of[a], to = places->site_of[b];
    if (from == to)
        return none;
    struct path path = path_between(places->topology, places->site[from], places->site[to]);
    return (struct crossings){
        path.rtt_seconds / shape->wan_rtt_seconds, shape->wan_bytes_per_second / path.bytes_per_second, 1,
    };
}

struct crossings crossings_sum(struct crossings a, struct crossings b)
{
    return (struct crossings){ a.latency + b.latency, a.bytes + b.bytes, a.number + b.number };
}

/* The one that takes longer, by its latency first. */
static struct crossings later(struct crossings a, struct crossings b)
{
    return b.latency > a.latency || (b.latency == a.latency && b.bytes > a.bytes) ? b : a;
}

/* Who a rank of a tree has its message from. Both are counted from the root, which is 0. */
typedef int parent_of(int rank);

/* Without the lowest bit, or without the highest. */
static int low_binomial(int rank)
{
    return rank & (rank - 1);
}

static int high_binomial(int rank)
{
    int bit = 1;
    while (bit * 2L <= rank)
        bit *= 2;
    return rank - bit;
}

/* The levels hold 1, 2, 4, ... ranks, and the ranks of one level take those of the level above in turns. */
static int binary(int rank)
{
    int above = 1;   /* ranks at the level above, of which the first is above - 1 */
    while (4L * above - 1 <= rank)
        above *= 2;
    return above - 1 + (rank - (above - 1)) % above;
}

/* A message between two ranks that are counted from the root. */
static struct crossings edge(const struct shape *shape, const struct places *places, int root, int a, int b)
{
    return crossing(shape, places, (int)(((long)a + root) % places->size), (int)(((long)b + root) % places->size));
}

/* The most crossings on a path between a rank and the root. */
static struct crossings longest(const struct shape *shape, const struct places *places, int root, parent_of *parent)
{
    struct crossings most = none;
    for (int r = 1; r < places->size; r++) {
        struct crossings path = none;
        for (int at = r; at > 0; at = parent(at))
            path = crossings_sum(path, edge(shape, places, root, at, parent(at)));
        most = later(most, path);
    }
    return most;
}

/* There are two binomial trees: MPICH's and, for most operations, Open MPI's; the better one counts. */
void shape_root(struct shape *shape, const struct places *places, int root)
{
    if (shape->tree_root == root)
        return;
    shape->tree_root = root;
    struct crossings low = longest(shape, places, root, low_binomial), high = longest(shape, places, root, high_binomial);
    shape->tree = low.latency < high.latency ? low : high;
    shape->binary = longest(shape, places, root, binary);
    shape->star = none;
    for (int r = 1; r < places->size; r++)
        shape->star = crossings_sum(shape->star, edge(shape, places, root, r, 0));
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
static struct crossings doubling(const struct shape *shape, const struct places *places, struct crossings *now,
                                 struct crossings *next)
{
    int size = places->size, power = 1;
    while (power * 2 <= size)
        power *= 2;
    int extra = size - power;
    memset(now, 0, (size_t)size * sizeof *now);
    for (int i = 0; i < extra; i++)
        now[2 * i + 1] = crossing(shape, places, 2 * i, 2 * i + 1);
#define REAL_RANK(n) ((n) < extra ? 2 * (n) + 1 : (n) + extra)
    for (int step = 1; step < power; step *= 2) {
        for (int n = 0; n < power; n++) {
            int a = REAL_RANK(n), b = REAL_RANK(n ^ step);
            next[a] = later(now[a], crossings_sum(now[b], crossing(shape, places, a, b)));
        }
        for (int n = 0; n < power; n++)
            now[REAL_RANK(n)] = next[REAL_RANK(n)];
    }
#undef REAL_RANK
    for (int i = 0; i < extra; i++)
        now[2 * i] = crossings_sum(now[2 * i + 1], crossing(shape, places, 2 * i, 2 * i + 1));
    return latest(now, size);
}

static struct crossings dissemination(const struct shape *shape, const struct places *places, struct crossings *now,
                                      struct crossings *next)
{
    int size = places->size;
    memset(now, 0, (size_t)size * sizeof *now);
    for (long step = 1; step < size; step *= 2) {
        for (int r = 0; r < size; r++) {
            int from = (int)((r + size - step) % size);
            next[r] = later(now[r], crossings_sum(now[from], crossing(shape, places, r, from)));
        }
        memcpy(now, next, (size_t)size * sizeof *now);
    }
    return latest(now, size);
}

static struct crossings without(struct crossings all, struct crossings one)
{
    return (struct crossings){ all.latency - one.latency, all.bytes - one.bytes, all.number - one.number };
}

/* A piece goes over all edges of the ring but one. */
static void ring(struct shape *shape, const struct places *places)
{
    struct crossings all = none, most = none, least = crossing(shape, places, 0, places->size - 1);
    for (int r = 0; r < places->size; r++) {
        struct crossings next = crossing(shape, places, r, (r + 1) % places->size);
        all = crossings_sum(all, next);
        most = later(most, next);
        least = next.latency < least.latency ? next : least;
    }
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
        shape_root(shape, places, 0);
        shape->doubling = doubling(shape, places, now, next);
        shape->dissemination = dissemination(shape, places, now, next);
        ring(shape, places);
    }
    free(ranks);
    free(now);
    return rc;
}
