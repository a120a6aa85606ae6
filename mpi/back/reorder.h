/* Which rank plays which vertex of a graph, so that little goes between sites. Pure: no MPI. */
#ifndef ISTHMUS_REORDER_H
#define ISTHMUS_REORDER_H

/* Edges of a graph with a vertex for each rank. Direction doesn't matter; an edge may be
 * there several times, and its weights add up. */
struct edges {
    long count, room;
    int *from, *to;     /* [count] vertices */
    int *weight;        /* [count] not negative */
};

/* Adds an edge. Returns 0, or -1 without memory. */
int edges_add(struct edges *edges, int from, int to, int weight);
void edges_free(struct edges *edges);

/* Finds rank_of[vertex] for `size` vertices and ranks, of which site[rank] is the site.
 * Never worse than vertex = rank; where it would be no better, it is that. Vertices are
 * numbered as they would be ranks without reordering. The result depends on the arguments
 * only. Returns 1 if the weight between sites is less than before, 0 if it isn't, or -1
 * without memory. */
int reorder(const struct edges *edges, const int *site, int size, int *rank_of);

/* The weight of the edges between sites. */
long long weight_between_sites(const struct edges *edges, const int *site, const int *rank_of);

#endif
