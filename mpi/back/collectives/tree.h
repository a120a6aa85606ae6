/* Who passes on to whom, over all tiers: at each, one rank of each subset crosses. */
#ifndef ISTHMUS_TREE_H
#define ISTHMUS_TREE_H

#include "call.h"

/* Many ranks of a site cross at once, each for its lanes. A lane belongs to one rank at each
 * site, whatever the number of ranks there; the lanes of a rank follow one another. */
struct lanes {
    int count;
    const int *site_of;   /* [size] of the communicator */
    int *start;           /* [sites + 1] where a site begins in `ranks` */
    int *ranks;           /* [size] by site, ascending */
    int *index;           /* [size] of each rank, within its site */
};

/* `count` 0: as many as the largest site has ranks, at most LANES_MAX. */
void lanes_make(struct call *call, struct lanes *lanes, int count);
int lanes_holder(const struct lanes *lanes, int site, int lane);
int lanes_site_members(const struct lanes *lanes, int site);

/* The lanes of the rank with that index in a site of so many: from *first to before *end. */
void lanes_of(const struct lanes *lanes, int index, int members, int *first, int *end);

/* Where a lane's share of `count` begins. */
int lanes_share(const struct lanes *lanes, int lane, int count);

/* The shares of the ranks of the calling one's site. */
struct shares {
    int *counts, *starts;   /* [site_members] */
    int first, end;         /* the calling rank's lanes */
};
void shares_make(struct call *call, struct shares *shares, const struct lanes *lanes, int count);

struct child {
    int rank;
    int tier, subset;   /* the ranks that it stands for */
};

struct tree {
    int member;         /* whether the calling rank is in it: it stands for its site */
    int head;           /* index in the site's communicator of the one who is */
    int parent;         /* rank, or -1 at the root and outside */
    int parent_tier;    /* the tier at which the parent is; where there is none, the one before the first */
    int children;
    struct child *child;    /* the widest tier's first, then by subset */
    int before;         /* children of the first tier that come before the root's subset */
};

/* The tree on the tiers of `layout` from `first_tier` inwards, with `root` on top: at each
 * tier, it stands for its subset. Others are stood for by their lowest rank or, with
 * `lanes`, by the lane's holder at the site of the lowest. */
void tree_make(struct call *call, struct tree *tree, const struct layout *layout, const struct lanes *lanes, int lane,
               int first_tier, int root);

/* Who stands for a subset in which the root isn't. */
int tree_representative(const struct lanes *lanes, int lane, const struct tier *tier, int subset);

/* The layout with a single tier: all sites side by side. It shares the given one's arrays. */
void layout_flat(struct call *call, struct layout *flat);

#endif
