/* Reads the lines of a topology file. Inner part of topology.c. */
#ifndef ISTHMUS_READING_H
#define ISTHMUS_READING_H

#include "names.h"
#include "topology.h"

/* A keyword, and the values of a site. */
#define WORDS_MAX (2 + NAMED_LEVELS_MAX)

/* A file while it is read. */
struct reading {
    struct topology *topology;
    struct names levels, sites, nodes, groups, values;
    int nodes_room;
    int line;
    char *words[WORDS_MAX + 1];
    int count;          /* of words */
    char *why;          /* what is wrong, for the user */
    size_t why_len;
};

/* Write what is wrong with the line, and return -1. `which` may be "". */
int refuse(struct reading *reading, const char *what, const char *which);
int no_memory(struct reading *reading);

/* One line each, cut into words, by its keyword. Return 0 or -1. */
int read_levels(struct reading *reading);
int read_site(struct reading *reading);
int read_node(struct reading *reading);
int read_path(struct reading *reading);
int read_group(struct reading *reading);
int read_reorder(struct reading *reading);
int read_self(struct reading *reading);
int read_rank(struct reading *reading);

#endif
