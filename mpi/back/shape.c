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

/* The crossings between a rank and the root, where rank r, counted from the root, gets its
 * message from r without one of its bits: the lowest, or the highest. */
static struct crossings on_path(const struct shape *shape, const struct places *places, int root, int r, int highest)
{
    int size = places->size;
    struct crossings all = none;
    while (r > 0) {
        int bit = r & -r;
        while (highest && bit * 2L <= r)
            bit *= 2;
        int parent = r - bit;
        all = crossings_sum(all, crossing(shape, places, (int)(((long)r + root) % size), (int)(((long)parent + root) % size)));
        r = parent;
    }
    return all;
}

/* The most crossings on a path of a binomial tree. There are two of them: MPICH's and, for most
 * operations, Open MPI's; the better one counts. */
static struct crossings tree(const struct shape *shape, const struct places *places, int root)
{
    struct crossings most[2] = { none, none };
    for (int r = 1; r < places->size; r++)
        for (int highest = 0; highest < 2; highest++)
            most[highest] = later(most[highest], on_path(shape, places, root, r, highest));
    return most[0].latency < most[1].latency ? most[0] : most[1];
}

void shape_root(struct shape *shape, const struct places *places, int root)
{
    if (shape->tree_root == root)
        return;
    shape->tree_root = root;
    shape->tree = tree(shape, places, root);
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
        struct crossings edge = crossing(shape, places, r, (r + 1) % places->size);
        all = crossings_sum(all, edge);
        most = later(most, edge);
        least = edge.latency < least.latency ? edge : least;
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
