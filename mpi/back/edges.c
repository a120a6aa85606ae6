#include "reorder.h"

#include <stdlib.h>

int edges_add(struct edges *edges, int from, int to, int weight)
{
    if (edges->count == edges->room) {
        long room = edges->room ? edges->room * 2 : 64;
        int **columns[] = {&edges->from, &edges->to, &edges->weight};
        for (int i = 0; i < 3; i++) {
            int *column = realloc(*columns[i], (size_t)room * sizeof *column);
            if (!column)
                return -1;
            *columns[i] = column;
        }
        edges->room = room;
    }
    edges->from[edges->count] = from;
    edges->to[edges->count] = to;
    edges->weight[edges->count++] = weight;
    return 0;
}

void edges_free(struct edges *edges)
{
    free(edges->from);
    free(edges->to);
    free(edges->weight);
    *edges = (struct edges){0};
}

long long weight_between_sites(const struct edges *edges, const int *site, const int *rank_of)
{
    long long sum = 0;
    for (long i = 0; i < edges->count; i++)
        if (site[rank_of[edges->from[i]]] != site[rank_of[edges->to[i]]])
            sum += edges->weight[i];
    return sum;
}
