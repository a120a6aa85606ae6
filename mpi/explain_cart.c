#include "explain_cart.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "back/grid.h"

int cart_read(struct cart *cart, const char *text)
{
    cart->dimensions = 0;
    while (cart->dimensions < CART_DIMENSIONS_MAX) {
        char *end;
        int d = cart->dimensions++;
        if (*text < '0' || *text > '9')
            return -1;
        long length = strtol(text, &end, 10);
        if (length < 1 || length > INT_MAX)
            return -1;
        cart->length[d] = (int)length;
        cart->periodic[d] = *end == 'p';
        end += cart->periodic[d];
        if (*end == '\0')
            return 0;
        if (*end != 'x')
            return -1;
        text = end + 1;
    }
    return -1;
}

int cart_fits(const struct cart *cart, int ranks)
{
    if (cart->dimensions == 0 || grid_vertices(cart->dimensions, cart->length, ranks) > 0)
        return 1;
    fprintf(stderr, "isthmus-coll-explain: the Cartesian topology has more vertices than there are ranks: %d\n", ranks);
    return 0;
}

int cart_explain(const struct cart *cart, const int *site_of, int ranks, int json)
{
    struct edges edges = { 0 };
    int count = grid_vertices(cart->dimensions, cart->length, ranks), better = -1;
    int *rank_of = malloc((size_t)ranks * sizeof *rank_of);
    long long before = 0, after = 0;
    if (rank_of != NULL && grid_edges(&edges, cart->dimensions, cart->length, cart->periodic, count) == 0) {
        for (int v = 0; v < ranks; v++)
            rank_of[v] = v;
        before = weight_between_sites(&edges, site_of, rank_of);
        better = reorder(&edges, site_of, ranks, rank_of);
        after = weight_between_sites(&edges, site_of, rank_of);
    }
    if (better < 0)
        fprintf(stderr, "isthmus-coll-explain: no memory for the Cartesian topology\n");
    else if (json)
        printf(",\n  \"cart\": {\"edges\": %ld, \"between_sites\": %lld, \"between_sites_reordered\": %lld}",
               edges.count, before, after);
    else if (better)
        printf("\nMPI_Cart_create: %lld of %ld edges are between sites, %lld with isthmus run --reorder\n", before, edges.count, after);
    else
        printf("\nMPI_Cart_create: %lld of %ld edges are between sites; no order is better\n", before, edges.count);
    edges_free(&edges);
    free(rank_of);
    return better < 0 ? -1 : 0;
}
