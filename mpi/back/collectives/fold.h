/* Combining the parts of a reduction. */
#ifndef ISTHMUS_FOLD_H
#define ISTHMUS_FOLD_H

#include "kind.h"
#include "tree.h"

struct reduction {
    struct kind kind;
    MPI_Op op;
    int commutative;
};

/* False if the MPI's own function must speak. `buffer`: one that must be valid if the
 * type is plain. */
int reduction_of(struct reduction *reduction, const void *buffer, int count, MPI_Datatype type, MPI_Op op);

/* The layout by which parts are combined. Rank order is kept where sites lie side by side, not
 * where they are nested. */
struct layout reduction_layout(struct call *call, const struct reduction *reduction);

/* Makes lanes and shares of `count` elements, and reduces within the site: each rank gets its
 * shares, in memory that lasts as long as the call. NULL after an error. */
char *reduce_shares(struct call *call, const struct reduction *reduction, const void *send, int count,
                    struct lanes *lanes, struct shares *shares);

/* Combines part[0] to part[parts - 1], in this order, so that all who have the same parts
 * get the same bits. Waits for each by arrived[] (-1: it is there). Writes into the last and
 * returns it. */
char *fold(struct call *call, const struct reduction *reduction, char **part, const int *arrived, int parts, int count);

/* Receives for `count` elements from each of `ranks`, but for the one at `own`, whose part is
 * `own_part`: fills part[] and arrived[]. */
void fold_receive(struct call *call, const struct reduction *reduction, const int *ranks, int parts, int own,
                  char *own_part, int count, int tag, char **part, int *arrived);

#endif
