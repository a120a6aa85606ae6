/* What MPI_Cart_create with `reorder` would gain if the job asked for it. */
#ifndef ISTHMUS_EXPLAIN_CART_H
#define ISTHMUS_EXPLAIN_CART_H

#define CART_DIMENSIONS_MAX 16

struct cart {
    int dimensions;
    int length[CART_DIMENSIONS_MAX], periodic[CART_DIMENSIONS_MAX];
};

/* Reads "4x6", with a `p` behind each dimension that is periodic: "4px6". Returns 0, or -1 if it
 * isn't such. */
int cart_read(struct cart *cart, const char *text);

/* Whether there are ranks enough; else says so. Without dimensions, they are. */
int cart_fits(const struct cart *cart, int ranks);

/* Prints the edges between sites, as ranks come and reordered, as a line or a member of a JSON
 * object. `site_of`: the site of each rank. It must fit. Returns 0, or -1 with a message. */
int cart_explain(const struct cart *cart, const int *site_of, int ranks, int json);

#endif
