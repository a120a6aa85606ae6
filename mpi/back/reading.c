#include "reading.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_MAX 63
#define NAME_MAX_BYTES 253

int refuse(struct reading *reading, const char *what, const char *which)
{
    snprintf(reading->why, reading->why_len, "line %d: %s%s%.64s", reading->line, what, *which ? ": " : "", which);
    return -1;
}

int no_memory(struct reading *reading)
{
    return refuse(reading, "no memory", "");
}

/* Letters, digits, '-' and '.', in labels of 1 to 63 bytes between the dots. */
static int is_name(const char *name)
{
    size_t label = 0, length = strlen(name);
    if (length > NAME_MAX_BYTES)
        return 0;
    for (; *name; name++) {
        if (*name == '.') {
            if (label == 0)
                return 0;
            label = 0;
        } else if ((isascii(*name) && isalnum((unsigned char)*name)) || *name == '-') {
            if (++label > LABEL_MAX)
                return 0;
        } else {
            return 0;
        }
    }
    return label > 0;
}

/* Digits, with a fraction if `fraction`. strtod() would depend on the locale. */
static int number(const char *word, int fraction, double most, double *value)
{
    double scale = 0;
    *value = 0;
    if (!isdigit((unsigned char)*word))
        return -1;
    for (; *word; word++) {
        if (*word == '.' && fraction && scale == 0) {
            scale = 1;
        } else if (isdigit((unsigned char)*word)) {
            scale *= 10;
            *value = *value * 10 + (*word - '0');
            if (*value > 1e15)
                return -1;
        } else {
            return -1;
        }
    }
    if (scale > 1)
        *value /= scale;
    return *value <= most ? 0 : -1;
}

/* Adds a new name to a table of at most `most`. Returns its index or -1. */
static int add_name(struct reading *reading, struct names *names, char *name, int most)
{
    if (!is_name(name))
        return refuse(reading, "not a name", name);
    if (names_find(names, name) >= 0)
        return refuse(reading, "named twice", name);
    if (names->count >= most)
        return refuse(reading, "too many, from here on", name);
    int index = names_add(names, name);
    return index >= 0 ? index : no_memory(reading);
}

/* The index of a name that must be there. */
static int known(struct reading *reading, const struct names *names, const char *what, const char *name)
{
    int index = names_find(names, name);
    return index >= 0 ? index : refuse(reading, what, name);
}

/* levels NAME... */
int read_levels(struct reading *reading)
{
    static const char *const reserved[] = {"site", "node", "group", "grid"};
    if (reading->sites.count > 0 || reading->levels.count > 0)
        return refuse(reading, "`levels` comes once, before the sites", "");
    for (int i = 1; i < reading->count; i++) {
        for (size_t r = 0; r < sizeof reserved / sizeof *reserved; r++)
            if (strcmp(reading->words[i], reserved[r]) == 0)
                return refuse(reading, "this level can't be named so", reading->words[i]);
        if (add_name(reading, &reading->levels, reading->words[i], NAMED_LEVELS_MAX) < 0)
            return -1;
    }
    return reading->count > 1 ? 0 : refuse(reading, "`levels` names none", "");
}

/* site NAME VALUE... */
int read_site(struct reading *reading)
{
    struct topology *topology = reading->topology;
    int named = reading->levels.count;
    if (reading->count != 2 + named)
        return refuse(reading, "a site has a name and one value for each level", "");
    int site = add_name(reading, &reading->sites, reading->words[1], SITES_MAX);
    if (site < 0)
        return -1;
    if (!topology->places) {
        topology->places = calloc((size_t)SITES_MAX * (size_t)(named + 1), sizeof(int));
        if (!topology->places)
            return no_memory(reading);
    }
    int *place = topology->places + site * (named + 1);
    for (int level = 0; level < named; level++) {
        char *value = reading->words[2 + level];
        if (!is_name(value))
            return refuse(reading, "not a name", value);
        place[level] = names_find(&reading->values, value);
        if (place[level] < 0 && (place[level] = names_add(&reading->values, value)) < 0)
            return no_memory(reading);
    }
    place[named] = site;
    return 0;
}

/* group NAME RANKS: those that follow the ranks of the groups before. */
int read_group(struct reading *reading)
{
    struct topology *topology = reading->topology;
    double ranks;
    if (reading->count != 3)
        return refuse(reading, "a group has a name and a number of ranks", "");
    if (number(reading->words[2], 0, INT_MAX, &ranks) != 0 || ranks < 1)
        return refuse(reading, "not a number of ranks", reading->words[2]);
    int group = add_name(reading, &reading->groups, reading->words[1], GROUPS_MAX);
    if (group < 0)
        return -1;
    if (!topology->group_ends && !(topology->group_ends = calloc(GROUPS_MAX, sizeof *topology->group_ends)))
        return no_memory(reading);
    int first = group > 0 ? topology->group_ends[group - 1] : 0;
    if (ranks > INT_MAX - first)
        return refuse(reading, "the groups have too many ranks", reading->words[2]);
    topology->group_ends[group] = first + (int)ranks;
    return 0;
}

/* node NAME SITE */
int read_node(struct reading *reading)
{
    struct topology *topology = reading->topology;
    if (reading->count != 3)
        return refuse(reading, "a node has a name and a site", "");
    int index = add_name(reading, &reading->nodes, reading->words[1], NODES_MAX);
    int site = index < 0 ? -1 : known(reading, &reading->sites, "no such site", reading->words[2]);
    if (site < 0)
        return -1;
    if (index == reading->nodes_room) {
        reading->nodes_room = reading->nodes_room ? reading->nodes_room * 2 : 64;
        void *node = realloc(topology->node, (size_t)reading->nodes_room * sizeof *topology->node);
        if (!node)
            return no_memory(reading);
        topology->node = node;
    }
    topology->node[index] = (struct node){
        .name = reading->words[1],
        .place = topology->places + site * (reading->levels.count + 1),
    };
    return 0;
}

/* path SITE SITE RTT_MICROSECONDS BYTES_PER_SECOND, in both directions. */
int read_path(struct reading *reading)
{
    struct topology *topology = reading->topology;
    if (reading->count != 5)
        return refuse(reading, "a path has two sites, a round-trip time and a rate", "");
    int from = known(reading, &reading->sites, "no such site", reading->words[1]);
    int to = from < 0 ? -1 : known(reading, &reading->sites, "no such site", reading->words[2]);
    if (to < 0)
        return -1;
    double microseconds, rate;
    if (number(reading->words[3], 1, 1e12, &microseconds) != 0)
        return refuse(reading, "not a time in microseconds", reading->words[3]);
    if (number(reading->words[4], 1, 1e15, &rate) != 0)
        return refuse(reading, "not a rate in bytes per second", reading->words[4]);
    /* Its final size isn't known before the last site. */
    if (!topology->path) {
        topology->path = calloc((size_t)SITES_MAX * SITES_MAX, sizeof *topology->path);
        if (!topology->path)
            return no_memory(reading);
    }
    struct path path = {.rtt_seconds = microseconds / 1e6, .bytes_per_second = rate};
    topology->path[from * SITES_MAX + to] = path;
    topology->path[to * SITES_MAX + from] = path;
    return 0;
}

/* reorder */
int read_reorder(struct reading *reading)
{
    if (reading->count != 1)
        return refuse(reading, "`reorder` stands alone", "");
    reading->topology->reorder = 1;
    return 0;
}

/* self NODE */
int read_self(struct reading *reading)
{
    if (reading->count != 2)
        return refuse(reading, "`self` has one node", "");
    if (reading->topology->self >= 0)
        return refuse(reading, "`self` comes once", "");
    reading->topology->self = known(reading, &reading->nodes, "no such node", reading->words[1]);
    return reading->topology->self >= 0 ? 0 : -1;
}

/* rank N NODE */
int read_rank(struct reading *reading)
{
    struct topology *topology = reading->topology;
    double value;
    if (reading->count != 3)
        return refuse(reading, "`rank` has a number and a node", "");
    if (number(reading->words[1], 0, WORLD_MAX - 1, &value) != 0)
        return refuse(reading, "not a rank", reading->words[1]);
    int rank = (int)value, node = known(reading, &reading->nodes, "no such node", reading->words[2]);
    if (node < 0)
        return -1;
    if (!topology->world) {
        topology->world = malloc(WORLD_MAX * sizeof *topology->world);
        if (!topology->world)
            return no_memory(reading);
    }
    for (; topology->world_size <= rank; topology->world_size++)
        topology->world[topology->world_size] = -1;
    if (topology->world[rank] >= 0)
        return refuse(reading, "this rank has a node", reading->words[1]);
    topology->world[rank] = node;
    return 0;
}
