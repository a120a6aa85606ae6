/* What the collectives of a site have in common. */
#ifndef ISTHMUS_SITE_PARTS_H
#define ISTHMUS_SITE_PARTS_H

#include "site.h"

/* The least share of a rank for which a vector is worth being cut. */
#define SHARE_BYTES 4096

/* Who passes on to whom within the site: a binomial tree. The ranks from a child on, as many as its
 * distance, are those that it stands for. */
struct branch {
    int parent;         /* index, or -1 at the head */
    int children;
    int child[32];      /* the nearest first */
};

int site_own_index(const struct call *call);
struct branch site_branch(const struct call *call, int head);

int site_send(struct call *call, const struct kind *kind, const void *buffer, int count, int index);
int site_receive(struct call *call, const struct kind *kind, void *buffer, int count, int index);

/* Whether all are to work on a share each: the whole then goes twice over a rank's link, and not once
 * for each step of a tree. */
int site_shares(const struct call *call, const struct kind *kind, int count);
void site_equal_shares(struct call *call, struct shares *shares, int count);

/* Parts of a vector from one index on, as two ranges: behind the last comes the first. */
struct range {
    int start, count;   /* elements */
};

void site_ranges(struct range range[2], const int *counts, const int *starts, int members, int first, int parts);

#endif
