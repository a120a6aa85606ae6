#ifndef ISTHMUS_SHAPE_OF_H
#define ISTHMUS_SHAPE_OF_H

#include "../spread.h"

/* Makes the spread's shape from its layout, the topology's paths, and what ranks have told each other of their
 * processors, and so the same on all ranks. Returns 0, or -1 without memory. */
int shape_of_spread(struct spread *spread);

/* Makes what the shape says of trees be that of trees from this root. Returns 0, or -1 without memory. */
int shape_of_root(struct spread *spread, int root);

#endif
