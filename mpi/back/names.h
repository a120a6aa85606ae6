/* A table of names, each with an index. It keeps pointers to the names, not copies. */
#ifndef ISTHMUS_NAMES_H
#define ISTHMUS_NAMES_H

struct names {
    char **name;        /* [count] */
    int count;
    int room;           /* of `name` */
    int *slot;          /* [slots] index + 1, or 0 */
    unsigned slots;     /* a power of two, or 0 */
};

/* The index of a name, or -1. */
int names_find(const struct names *names, const char *name);

/* Adds a name that isn't in the table. Returns its index, or -1 without memory. */
int names_add(struct names *names, char *name);

void names_free(struct names *names);

#endif
