/* How often the MPI's own algorithms would cross between sites, for a given order of ranks. */
#include "choice.h"

#include <stdlib.h>
#include <string.h>

/* The crossings between a rank and the root, where rank r, counted from the root, gets its
 * message from r without one of its bits: the lowest, or the highest. */
static int on_path(const int *site_of, int size, int root, int r, int highest)
{
    int crossings = 0;
    while (r > 0) {
        int bit = r & -r;
        while (highest && bit * 2L <= r)
            bit *= 2;
        int parent = r - bit;
        crossings += site_of[(int)(((long)r + root) % size)] != site_of[(int)(((long)parent + root) % size)];
        r = parent;
    }
    return crossings;
}

/* The most crossings on a path of a binomial tree. There are two of them: MPICH's and, for most
 * operations, Open MPI's; the better one counts. */
static int tree(const int *site_of, int size, int root)
{
    int most[2] = { 0, 0 };
    for (int r = 1; r < size; r++) {
        for (int highest = 0; highest < 2; highest++) {
            int crossings = on_path(site_of, size, root, r, highest);
            if (crossings > most[highest])
                most[highest] = crossings;
        }
    }
    return most[0] < most[1] ? most[0] : most[1];
}

void shape_root(struct shape *shape, const int *site_of, int root)
{
    if (shape->tree_root == root)
        return;
    shape->tree_root = root;
    shape->tree_crossings = tree(site_of, shape->size, root);
}

static int later(int a, int b, int crosses)
{
    return b + crosses > a ? b + crosses : a;
}

/* Recursive doubling among the largest power of two of ranks; what is left over is folded
 * into neighbours first and served last, as both MPIs do. */
static int doubling(const int *site_of, int size, int *now, int *next)
{
    int power = 1;
    while (power * 2 <= size)
        power *= 2;
    int extra = size - power, most = 0;
    memset(now, 0, (size_t)size * sizeof *now);
    for (int i = 0; i < extra; i++)
        now[2 * i + 1] = site_of[2 * i] != site_of[2 * i + 1];
#define REAL_RANK(n) ((n) < extra ? 2 * (n) + 1 : (n) + extra)
    for (int step = 1; step < power; step *= 2) {
        for (int n = 0; n < power; n++) {
            int a = REAL_RANK(n), b = REAL_RANK(n ^ step);
            next[a] = later(now[a], now[b], site_of[a] != site_of[b]);
        }
        for (int n = 0; n < power; n++)
            now[REAL_RANK(n)] = next[REAL_RANK(n)];
    }
#undef REAL_RANK
    for (int i = 0; i < extra; i++)
        now[2 * i] = now[2 * i + 1] + (site_of[2 * i] != site_of[2 * i + 1]);
    for (int r = 0; r < size; r++)
        most = now[r] > most ? now[r] : most;
    return most;
}

static int dissemination(const int *site_of, int size, int *now, int *next)
{
    int most = 0;
    memset(now, 0, (size_t)size * sizeof *now);
    for (long step = 1; step < size; step *= 2) {
        for (int r = 0; r < size; r++) {
            int from = (int)((r + size - step) % size);
            next[r] = later(now[r], now[from], site_of[r] != site_of[from]);
        }
        memcpy(now, next, (size_t)size * sizeof *now);
    }
    for (int r = 0; r < size; r++)
        most = now[r] > most ? now[r] : most;
    return most;
}

/* A piece goes over all edges of the ring but one. */
static int ring(const int *site_of, int size)
{
    int borders = 0;
    for (int r = 0; r < size; r++)
        borders += site_of[r] != site_of[(r + 1) % size];
    return borders == size ? borders - 1 : borders;
}

static int count_sites(struct shape *shape, const int *site_of, int size, int *ranks)
{
    int runs = 1;
    shape->sites = 0;
    memset(ranks, 0, (size_t)size * sizeof *ranks);
    for (int r = 0; r < size; r++) {
        if (site_of[r] >= shape->sites)
            shape->sites = site_of[r] + 1;
        ranks[site_of[r]]++;
        runs += r > 0 && site_of[r] != site_of[r - 1];
    }
    shape->smallest = shape->largest = ranks[0];
    for (int s = 1; s < shape->sites; s++) {
        shape->smallest = ranks[s] < shape->smallest ? ranks[s] : shape->smallest;
        shape->largest = ranks[s] > shape->largest ? ranks[s] : shape->largest;
    }
    return runs;
}

int shape_measure(struct shape *shape, const int *site_of, int size)
{
    int *now = malloc(2 * (size_t)size * sizeof *now);
    if (now == NULL)
        return -1;
    int *next = now + size;
    shape->size = size;
    shape->contiguous = count_sites(shape, site_of, size, now) == shape->sites;
    shape->tree_root = -1;
    shape_root(shape, site_of, 0);
    shape->doubling_crossings = doubling(site_of, size, now, next);
    shape->dissemination_crossings = dissemination(site_of, size, now, next);
    shape->ring_crossings = ring(site_of, size);
    free(now);
    return 0;
}
