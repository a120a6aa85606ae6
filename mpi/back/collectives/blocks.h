/* Blocks of bytes, one of each rank, that are brought together or spread along a tree. A
 * row has those of a set of ranks, in ascending order of ranks. */
#ifndef ISTHMUS_BLOCKS_H
#define ISTHMUS_BLOCKS_H

#include "tree.h"

/* Bytes of the row of some ranks, or of a subset of a tier. */
size_t row_length(const int *length, const int *ranks, int count);
size_t subset_length(const int *length, const struct tier *tier, int subset);

/* Between the row of a tier's set and those of its subsets. */
void rows_merge(const int *length, const struct tier *tier, char *const *subset_row, char *row);
void rows_part(const int *length, const struct tier *tier, const char *row, char *const *subset_row);

/* Upwards: `row` is the site's, at the tree's member there. Returns the row of all ranks of the
 * tree at the root, NULL elsewhere. length[] by rank is known for all ranks or, with
 * `told`, travels before the blocks. */
char *blocks_up(struct call *call, const struct layout *layout, const struct tree *tree, int first_tier, int *length,
                char *row, int told);

/* Downwards: `row` is that of all ranks at the root. Returns the site's at the tree's member
 * there. */
char *blocks_down(struct call *call, const struct layout *layout, const struct tree *tree, int first_tier, int *length,
                  char *row, int told);

/* Within a site, between its ranks and the one at `head`, who has the row (others: NULL). */
char *site_up(struct call *call, const int *length, const char *own, int head);
void site_down(struct call *call, const int *length, const char *row, char *own, int head);

/* Tells the one at `head` the lengths of its site's ranks: length[] by rank in the communicator. */
void site_lengths(struct call *call, int *length, int head);

#endif
