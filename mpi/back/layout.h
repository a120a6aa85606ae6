/* How the ranks of a communicator fall apart, level by level. Pure: plain data in and
 * out, no MPI. */
#ifndef ISTHMUS_LAYOUT_H
#define ISTHMUS_LAYOUT_H

#include <stddef.h>

/* Levels between the whole job and sites that count, with sites themselves. */
#define LEVELS_MAX 8

/* One level at which the set of ranks around the calling one falls into subsets. */
struct tier {
    int level;        /* index into the topology's levels, 0 the widest; sites are the last */
    int members;      /* ranks of the set */
    int *ranks;       /* [members] their ranks in the communicator, ascending */
    int subsets;      /* >= 2 */
    int *subset_of;   /* [members] the subset of each */
    int *leaders;     /* [subsets] the lowest rank of each; subsets are numbered by it, ascending */
    int *counts;      /* [subsets] ranks of each */
    int mine;         /* the subset of the calling rank: the set of the next tier */
};

/* A communicator's layout, as one of its ranks sees it. The set of the first tier is the
 * communicator; the subset `mine` of the last is the calling rank's site. A level at which
 * all ranks around the calling one are together has no tier, so ranks at different places
 * may have different numbers of tiers. */
struct layout {
    int size, rank;
    int tiers;                 /* 0: all ranks are at one site */
    struct tier tier[LEVELS_MAX];
    int *site_of;              /* [size] site of each rank, numbered by its lowest rank */
    int sites;
    int site_members;          /* ranks at the calling rank's site */
    int *site_ranks;           /* [site_members] ascending: rank in the site's communicator is the index */
};

/* Makes the layout. `place[r * levels + l]` is where rank r is at level l, as any number
 * that is equal for equal places within the enclosing place. Returns 0, or -1 without
 * memory. */
int layout_make(struct layout *layout, const int *place, int levels, int size, int rank);
void layout_free(struct layout *layout);

/* The position of a communicator's rank in a tier's set, or -1. */
int tier_position(const struct tier *tier, int rank);

#endif
