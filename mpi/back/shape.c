/* How the ranks of a communicator fall into sites, and how often the MPI's own algorithms would
 * cross between them, for a given order of ranks. */
#include "choice.h"

#include <stdlib.h>
#include <string.h>

#include "paths.h"

/* What a message between two ranks counts, of a crossing between the sites that are farthest apart. */
static double crossing(const struct shape *shape, const struct places *places, int a, int b)
{
    int from = places->site_of[a], to = places->site_of[b];
    if (from == to)
        return 0;
    return path_between(places->topology, places->site[from], places->site[to]).rtt_seconds / shape->wan_rtt_seconds;
}

/* The crossings between a rank and the root, where rank r, counted from the root, gets its
 * message from r without one of its bits: the lowest, or the highest. */
static double on_path(const struct shape *shape, const struct places *places, int root, int r, int highest)
{
    int size = places->size;
    double crossings = 0;
    while (r > 0) {
        int bit = r & -r;
        while (highest && bit * 2L <= r)
            bit *= 2;
        int parent = r - bit;
        crossings += crossing(shape, places, (int)(((long)r + root) % size), (int)(((long)parent + root) % size));
        r = parent;
    }
    return crossings;
}

static double more(double a, double b)
{
    return a > b ? a : b;
}

/* The most crossings on a path of a binomial tree. There are two of them: MPICH's and, for most
 * operations, Open MPI's; the better one counts. */
static double tree(const struct shape *shape, const struct places *places, int root)
{
    double most[2] = { 0, 0 };
    for (int r = 1; r < places->size; r++)
        for (int highest = 0; highest < 2; highest++)
            most[highest] = more(most[highest], on_path(shape, places, root, r, highest));
    return most[0] < most[1] ? most[0] : most[1];
}

void shape_root(struct shape *shape, const struct places *places, int root)
{
    if (shape->tree_root == root)
        return;
    shape->tree_root = root;
    shape->tree_crossings = tree(shape, places, root);
}

/* Recursive doubling among the largest power of two of ranks; what is left over is folded
 * into neighbours first and served last, as both MPIs do. */
static double doubling(const struct shape *shape, const struct places *places, double *now, double *next)
{
    int size = places->size, power = 1;
    while (power * 2 <= size)
        power *= 2;
    int extra = size - power;
    double most = 0;
    memset(now, 0, (size_t)size * sizeof *now);
    for (int i = 0; i < extra; i++)
        now[2 * i + 1] = crossing(shape, places, 2 * i, 2 * i + 1);
#define REAL_RANK(n) ((n) < extra ? 2 * (n) + 1 : (n) + extra)
    for (int step = 1; step < power; step *= 2) {
        for (int n = 0; n < power; n++) {
            int a = REAL_RANK(n), b = REAL_RANK(n ^ step);
            next[a] = more(now[a], now[b] + crossing(shape, places, a, b));
        }
        for (int n = 0; n < power; n++)
            now[REAL_RANK(n)] = next[REAL_RANK(n)];
    }
#undef REAL_RANK
    for (int i = 0; i < extra; i++)
        now[2 * i] = now[2 * i + 1] + crossing(shape, places, 2 * i, 2 * i + 1);
    for (int r = 0; r < size; r++)
        most = more(most, now[r]);
    return most;
}

static double dissemination(const struct shape *shape, const struct places *places, double *now, double *next)
{
    int size = places->size;
    double most = 0;
    memset(now, 0, (size_t)size * sizeof *now);
    for (long step = 1; step < size; step *= 2) {
        for (int r = 0; r < size; r++) {
            int from = (int)((r + size - step) % size);
            next[r] = more(now[r], now[from] + crossing(shape, places, r, from));
        }
        memcpy(now, next, (size_t)size * sizeof *now);
    }
    for (int r = 0; r < size; r++)
        most = more(most, now[r]);
    return most;
}

/* A piece goes over all edges of the ring but one. */
static void ring(struct shape *shape, const struct places *places)
{
    double all = 0, most = 0, least = 1;
    for (int r = 0; r < places->size; r++) {
        double edge = crossing(shape, places, r, (r + 1) % places->size);
        all += edge;
        most = more(most, edge);
        least = edge < least ? edge : least;
    }
    shape->ring_crossings = all - least;
    shape->chain_crossings = all - most;
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
    int *ranks = malloc(2 * (size_t)places->sites * sizeof *ranks);
    double *now = malloc(2 * (size_t)places->size * sizeof *now);
    if (ranks && now) {
        double *next = now + places->size;
        shape->contiguous = count_sites(shape, places, ranks);
        shape_paths(shape, places, ranks, ranks + places->sites);
        shape->tree_root = -1;
        shape_root(shape, places, 0);
        shape->doubling_crossings = doubling(shape, places, now, next);
        shape->dissemination_crossings = dissemination(shape, places, now, next);
        ring(shape, places);
    }
    int rc = ranks && now ? 0 : -1;
    free(ranks);
    free(now);
    return rc;
}
