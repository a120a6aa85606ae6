/* Rows on their way between one who has all of them and the others, who have one each. All go at the same time, in
 * blocks, of which only some are under way: they share the link of the one who has all, and would overrun its queue. See
 * window.h. */
#ifndef ISTHMUS_ROW_BLOCKS_H
#define ISTHMUS_ROW_BLOCKS_H

#include "pace.h"

/* How a row is cut. Both ends know it alike. */
struct row_blocks {
    size_t bytes;
    struct window window;
    int untold;    /* the last blocks, of which the sender hears nothing */
};

/* A row that goes out. */
struct going {
    struct row_blocks blocks;
    const char *row;
    int to, *told;    /* [blocks] */
};

/* A row that comes in. */
struct coming {
    struct row_blocks blocks;
    int from, *arrived;    /* [blocks] */
};

/* A row of so many bytes, one of `rows`. What follows sends it. */
struct going row_goes(struct call *call, const char *row, size_t bytes, int rows, int to);

/* Sends rows: all of them from the one who has all, or the only one. */
void rows_send(struct call *call, const struct going *going, int count);

/* Starts to receive a row of so many bytes, one of `rows`. */
struct coming row_comes(struct call *call, char *row, size_t bytes, int rows, int from);

/* Waits for rows: all of them at the one who gets all, or the only one. */
void rows_receive(struct call *call, const struct coming *coming, int count);

#endif
