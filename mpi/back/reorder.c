#include "reorder.h"

#include <stdlib.h>
#include <string.h>

#include "numbering.h"
#include "partition.h"

/* Comparisons in the search for a better partner, so that large graphs end, too: about
 * 0.1 s. */
#define BUDGET 50000000L
#define PASSES 8

static void work_free(struct work *work)
{
    free(work->first);
    free(work->neighbour);
    free(work->weight);
    free(work->room);
    free(work->at);
    free(work->best);
    free(work->pull);
}

/* Sorts the edges by vertex. */
static void fill(struct work *work, const struct edges *edges)
{
    for (long i = 0; i < edges->count; i++) {
        work->first[edges->from[i] + 1]++;
        work->first[edges->to[i] + 1]++;
    }
    for (int v = 0; v < work->size; v++)
        work->first[v + 1] += work->first[v];
    for (long i = 0; i < edges->count; i++) {
        int ends[] = {edges->from[i], edges->to[i]};
        for (int e = 0; e < 2; e++) {
            /* `first` is moved on and set back below. */
            long slot = work->first[ends[e]]++;
            work->neighbour[slot] = ends[1 - e];
            work->weight[slot] = edges->weight[i];
        }
    }
    memmove(work->first + 1, work->first, (size_t)work->size * sizeof *work->first);
    work->first[0] = 0;
}

static int work_make(struct work *work, const struct edges *edges, const int *site, int size, int sites)
{
    size_t n = (size_t)size, m = (size_t)edges->count * 2 + 1;
    *work = (struct work){
        .size = size, .sites = sites,
        .first = calloc(n + 1, sizeof(long)),
        .neighbour = malloc(m * sizeof(int)),
        .weight = malloc(m * sizeof(long long)),
        .room = calloc((size_t)sites, sizeof(int)),
        .at = malloc(n * sizeof(int)),
        .best = malloc(n * sizeof(int)),
        .pull = calloc((size_t)sites, sizeof(long long)),
    };
    if (!work->first || !work->neighbour || !work->weight || !work->room || !work->at || !work->best || !work->pull)
        return -1;
    fill(work, edges);
    for (int r = 0; r < size; r++)
        work->room[site[r]]++;
    return 0;
}

/* The weight between sites, counted from both ends. */
static long long cost(const struct work *work)
{
    long long sum = 0;
    for (int v = 0; v < work->size; v++)
        for (long i = work->first[v]; i < work->first[v + 1]; i++)
            if (work->at[v] != work->at[work->neighbour[i]])
                sum += work->weight[i];
    return sum;
}

/* The weight of a vertex's edges to a site. */
static long long weight_to(const struct work *work, int v, int site)
{
    long long sum = 0;
    for (long i = work->first[v]; i < work->first[v + 1]; i++)
        if (work->neighbour[i] != v && work->at[work->neighbour[i]] == site)
            sum += work->weight[i];
    return sum;
}

static long long weight_of_pair(const struct work *work, int v, int w)
{
    long long sum = 0;
    for (long i = work->first[v]; i < work->first[v + 1]; i++)
        if (work->neighbour[i] == w)
            sum += work->weight[i];
    return sum;
}

/* Exchanges a vertex with the one at a site that lowers the cost most. Returns whether one
 * was found. */
static int exchange(struct work *work, int v, int site)
{
    int own = work->at[v], best = -1;
    long long gain = weight_to(work, v, site) - weight_to(work, v, own), most = 0;
    for (int w = 0; w < work->size && work->budget > 0; w++) {
        work->budget--;
        if (work->at[w] != site)
            continue;
        work->budget -= work->first[w + 1] - work->first[w];
        long long both = gain + weight_to(work, w, own) - weight_to(work, w, site) - 2 * weight_of_pair(work, v, w);
        if (both > most) {
            most = both;
            best = w;
        }
    }
    if (best < 0)
        return 0;
    work->at[best] = own;
    work->at[v] = site;
    return 1;
}

/* The site to which a vertex has the heaviest edges, other than its own; -1 if none. */
static int pulled_to(struct work *work, int v)
{
    int site = -1;
    for (long i = work->first[v]; i < work->first[v + 1]; i++)
        work->pull[work->at[work->neighbour[i]]] += work->weight[i];
    for (long i = work->first[v]; i < work->first[v + 1]; i++) {
        int there = work->at[work->neighbour[i]];
        if (there != work->at[v] && (site < 0 || work->pull[there] > work->pull[site]))
            site = there;
    }
    for (long i = work->first[v]; i < work->first[v + 1]; i++)
        work->pull[work->at[work->neighbour[i]]] = 0;
    return site;
}

/* Exchanges pairs as long as that lowers the cost, and keeps the result if it is the best. */
static void improve(struct work *work)
{
    work->budget = BUDGET;
    for (int pass = 0, changed = 1; pass < PASSES && changed && work->budget > 0; pass++) {
        changed = 0;
        for (int v = 0; v < work->size && work->budget > 0; v++) {
            int site = pulled_to(work, v);
            if (site >= 0)
                changed |= exchange(work, v, site);
        }
    }
    long long now = cost(work);
    if (now < work->best_cost) {
        work->best_cost = now;
        memcpy(work->best, work->at, (size_t)work->size * sizeof *work->at);
    }
}

/* Vertices in their order, filled into the sites in theirs. */
static void fill_in_order(struct work *work)
{
    for (int site = 0, v = 0; site < work->sites; site++)
        for (int left = work->room[site]; left > 0; left--)
            work->at[v++] = site;
}

/* Gives each vertex a rank of its site: its own number if it is there, else the next. */
static void give_ranks(const struct work *work, const int *site, int *rank_of, int *next, char *taken)
{
    memset(taken, 0, (size_t)work->size);
    for (int v = 0; v < work->size; v++) {
        rank_of[v] = work->best[v] == site[v] ? v : -1;
        if (rank_of[v] == v)
            taken[v] = 1;
    }
    memset(next, 0, (size_t)work->sites * sizeof *next);
    for (int v = 0; v < work->size; v++) {
        if (rank_of[v] >= 0)
            continue;
        int *r = &next[work->best[v]];
        while (taken[*r] || site[*r] != work->best[v])
            ++*r;
        rank_of[v] = (*r)++;
    }
}

/* Improves three beginnings: as it is, in order, and grown. The first is the best of equals. */
static void search(struct work *work, const int *site, struct waiting *heap, long long *pulled)
{
    size_t bytes = (size_t)work->size * sizeof *work->at;
    memcpy(work->at, site, bytes);
    memcpy(work->best, site, bytes);
    work->first_cost = work->best_cost = cost(work);
    improve(work);
    fill_in_order(work);
    improve(work);
    grow(work, heap, pulled);
    improve(work);
}

/* With `site` numbered from 0, and scratch memory. */
static int find(const struct edges *edges, const int *site, int size, int sites, int *rank_of)
{
    struct work work;
    struct waiting *heap = malloc(((size_t)edges->count * 2 + 1) * sizeof *heap);
    long long *pulled = malloc((size_t)(size + 1) * sizeof *pulled);
    char *taken = malloc((size_t)size + 1);
    int rc = -1;
    if (work_make(&work, edges, site, size, sites) == 0 && heap && pulled && taken) {
        search(&work, site, heap, pulled);
        rc = work.best_cost < work.first_cost;
        /* `room` has done its work. */
        if (rc)
            give_ranks(&work, site, rank_of, work.room, taken);
    }
    work_free(&work);
    free(heap);
    free(pulled);
    free(taken);
    return rc;
}

int reorder(const struct edges *edges, const int *site, int size, int *rank_of)
{
    int *number = malloc((size_t)(size + 1) * sizeof *number), rc = -1;
    struct numbering numbering;
    for (int v = 0; v < size; v++)
        rank_of[v] = v;
    if (number && numbering_start(&numbering, size) == 0) {
        for (int r = 0; r < size; r++)
            number[r] = numbering_of(&numbering, site[r], 0);
        numbering_free(&numbering);
        rc = find(edges, number, size, numbering.count, rank_of);
    }
    free(number);
    return rc;
}
