#include "colors.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "numbering.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int colors_depth(const struct topology *topology)
{
    return topology->levels + 2;
}

const char *colors_level_name(const struct topology *topology, int level)
{
    if (level == 0)
        return "grid";
    if (level >= 1 && level <= topology->levels)
        return topology->level_names[level - 1];
    return level == topology->levels + 1 ? "node" : NULL;
}

int colors_level(const struct topology *topology, const char *name)
{
    for (int level = 0; level < colors_depth(topology); level++)
        if (strcmp(colors_level_name(topology, level), name) == 0)
            return level;
    return -1;
}

/* Where a node is at a level, as a number that is equal for equal places within the
 * enclosing one. */
static int place_at(const struct topology *topology, int node, int level)
{
    if (level == 0)
        return 0;
    return level <= topology->levels ? topology->node[node].place[level - 1] : node;
}

static int fill(int **colors, const struct known *known, const struct topology *topology)
{
    int depth = colors_depth(topology);
    for (int level = 0; level < depth; level++) {
        struct numbering numbering;
        if (numbering_start(&numbering, known->size) != 0)
            return -1;
        for (int i = 0; i < known->size; i++) {
            int enclosing = level > 0 ? colors[i][level - 1] : 0;
            colors[i][level] = numbering_of(&numbering, enclosing, place_at(topology, known->node_of[i], level));
        }
        numbering_free(&numbering);
    }
    return 0;
}

/* The pointers to the rows, and the rows, are one piece of memory. */
static int make(struct known *known, const struct topology *topology)
{
    size_t depth = (size_t)colors_depth(topology), size = (size_t)known->size;
    int *depths = malloc(size * sizeof *depths);
    int **colors = malloc(size * sizeof *colors + size * depth * sizeof **colors);
    int *rows = (int *)(colors + size);
    for (size_t i = 0; colors && depths && i < size; i++) {
        depths[i] = (int)depth;
        colors[i] = rows + i * depth;
    }
    if (!depths || !colors || fill(colors, known, topology) != 0) {
        free(depths);
        free(colors);
        return -1;
    }
    known->depths = depths;
    known->colors = colors;
    return 0;
}

int colors_make(struct known *known, const struct topology *topology)
{
    pthread_mutex_lock(&lock);
    int rc = known->colors ? 0 : make(known, topology);
    pthread_mutex_unlock(&lock);
    return rc;
}
