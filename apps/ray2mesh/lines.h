/* Reads files of one item a line. */
#ifndef LINES_H
#define LINES_H

#include <stddef.h>

/* What a file's lines are. */
struct lines {
    /* Makes the item at `index` of a line's text. Returns NULL, or what is wrong with it. */
    const char *(*item_of)(const char *text, void *items, size_t index);
    size_t item_bytes;
    /* How many lines of text come first, and how many items there may be. */
    size_t skip, most;
};

/* Reads all lines but empty ones and those that begin with #. Returns how many items there are, in
 * `items`, which the caller frees; or -1 with the file, the line and the reason in `error`. */
int lines_read(const char *path, const struct lines *lines, void **items, char *error, size_t room);

#endif
