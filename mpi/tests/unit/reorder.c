/* Reordering: it lowers the weight between sites where that can be done, never raises it,
 * and is a permutation. */
#include "../../back/reorder.h"

#include <time.h>

#include "unit.h"

enum { RANKS_MAX = 4096 };
static int site[RANKS_MAX], rank_of[RANKS_MAX], identity[RANKS_MAX];

static int is_permutation(int size)
{
    static char seen[RANKS_MAX];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < size; i++) {
        if (rank_of[i] < 0 || rank_of[i] >= size || seen[rank_of[i]])
            return 0;
        seen[rank_of[i]] = 1;
    }
    return 1;
}

static void grid(struct edges *edges, int rows, int columns)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            int v = r * columns + c;
            if (c + 1 < columns)
                edges_add(edges, v, v + 1, 1);
            if (r + 1 < rows)
                edges_add(edges, v, v + columns, 1);
        }
}

/* `most`: what must go between sites at most; -1 for `no change`. */
static void check(const char *name, struct edges *edges, int size, long long most)
{
    long long before = weight_between_sites(edges, site, identity);
    int rc = reorder(edges, site, size, rank_of);
    long long after = weight_between_sites(edges, site, rank_of);
    CHECK(is_permutation(size), "%s", name);
    CHECK(rc == (after < before), "%s: %d, %lld to %lld", name, rc, before, after);
    if (most < 0)
        CHECK(rc == 0 && memcmp(rank_of, identity, (size_t)size * sizeof(int)) == 0, "%s: changed", name);
    else
        CHECK(after <= most, "%s: %lld, then %lld, not %lld", name, before, after, most);
    static int again[RANKS_MAX];
    memcpy(again, rank_of, sizeof again);
    reorder(edges, site, size, rank_of);
    CHECK(memcmp(again, rank_of, (size_t)size * sizeof(int)) == 0, "%s: not the same twice", name);
    edges_free(edges);
}

static void sites(int size, int count, int interleaved)
{
    for (int i = 0; i < size; i++)
        site[i] = interleaved ? i % count : i * count / size;
}

static void check_tables(void)
{
    struct edges edges = {0};
    /* A ring over two sites is cut twice. */
    sites(8, 2, 1);
    for (int i = 0; i < 8; i++)
        edges_add(&edges, i, (i + 1) % 8, 3);
    check("ring, interleaved", &edges, 8, 6);

    sites(8, 2, 0);
    for (int i = 0; i < 8; i++)
        edges_add(&edges, i, (i + 1) % 8, 3);
    check("ring, in order", &edges, 8, -1);

    sites(16, 2, 1);
    grid(&edges, 4, 4);
    check("grid 4x4", &edges, 16, 4);

    sites(64, 4, 1);
    grid(&edges, 8, 8);
    check("grid 8x8, four sites", &edges, 64, 24);

    /* Heavy pairs, one of each at each site. */
    sites(12, 2, 0);
    for (int i = 0; i < 6; i++)
        edges_add(&edges, i, i + 6, 1000);
    for (int i = 0; i < 11; i++)
        edges_add(&edges, i, i + 1, 1);
    check("pairs", &edges, 12, 999);

    /* Sites of different sizes: a clique of three fits the small one. */
    static const int uneven[] = {0, 0, 1, 0, 1, 0, 1};
    memcpy(site, uneven, sizeof uneven);
    edges_add(&edges, 0, 1, 5);
    edges_add(&edges, 1, 2, 5);
    edges_add(&edges, 0, 2, 5);
    edges_add(&edges, 3, 4, 5);
    edges_add(&edges, 4, 5, 5);
    edges_add(&edges, 5, 6, 5);
    check("uneven", &edges, 7, 0);

    /* Everything to everything: nothing to win. */
    sites(6, 2, 1);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            edges_add(&edges, i, j, 1);
    check("complete", &edges, 6, -1);

    sites(4, 2, 1);
    check("no edges", &edges, 4, -1);
    edges_add(&edges, 0, 0, 9);
    check("a loop", &edges, 4, -1);
    edges_add(&edges, 0, 1, 0);
    check("weight 0", &edges, 4, -1);
    sites(1, 1, 0);
    check("one rank", &edges, 1, -1);
    edges_add(&edges, 0, 1, 2147483647);
    edges_add(&edges, 1, 0, 2147483647);
    sites(4, 2, 1);
    check("large weights", &edges, 4, 0);
}

/* Never worse, for random graphs and sites. */
static void check_random(void)
{
    srand(17);
    for (int round = 0; round < 200; round++) {
        struct edges edges = {0};
        int size = 1 + rand() % 40, count = 1 + rand() % 5, many = rand() % 200;
        for (int i = 0; i < size; i++)
            site[i] = rand() % count;
        for (int i = 0; i < many; i++)
            edges_add(&edges, rand() % size, rand() % size, rand() % 10);
        check("random", &edges, size, weight_between_sites(&edges, site, identity));
    }
}

static void check_large(void)
{
    struct edges edges = {0};
    sites(RANKS_MAX, 4, 1);
    grid(&edges, 64, 64);
    clock_t start = clock();
    check("grid 64x64, four sites", &edges, RANKS_MAX, 64 * 3);
    CHECK(clock() - start < 5 * CLOCKS_PER_SEC, "it takes too long");
}

int main(void)
{
    for (int i = 0; i < RANKS_MAX; i++)
        identity[i] = i;
    check_tables();
    check_random();
    check_large();
    return finish("reorder");
}
