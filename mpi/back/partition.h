/* Parts of a graph: which vertices are put at which site. Inner part of reorder.c. */
#ifndef ISTHMUS_PARTITION_H
#define ISTHMUS_PARTITION_H

/* The graph by vertex, with both directions of every edge, and where vertices are put. */
struct work {
    int size, sites;
    long *first;        /* [size + 1] index of a vertex's first neighbour */
    int *neighbour;
    long long *weight;
    int *room;          /* [sites] ranks of each */
    int *at;            /* [size] the site of each vertex */
    int *best;          /* [size] the same, of the best that was found */
    long long best_cost, first_cost;
    long long *pull;    /* [sites] scratch: weight of a vertex's edges to each site */
    long budget;
};

/* A vertex that waits to be taken by the site that grows, in a heap: the heaviest first,
 * and of equal ones that which came first. */
struct waiting {
    long long weight;
    int order, vertex;
};

/* Lets one site after the other grow over the graph: each takes the vertex that its edges
 * pull most, so that what is near stays together. `heap` has room for both directions of
 * every edge, `pulled` for every vertex. */
void grow(struct work *work, struct waiting *heap, long long *pulled);

#endif
