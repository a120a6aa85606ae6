/* Whether two processes have read the same: a hash of all that decisions depend on. */
#include <string.h>

#include "topology.h"

/* A digest of this library's sources, by the Makefile: those of two builds may decide differently. */
#ifndef SOURCES
#define SOURCES 0
#endif

typedef unsigned long long hash;

/* FNV-1a, 64 bits. */
static void add(hash *value, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < length; i++)
        *value = (*value ^ byte[i]) * 1099511628211ull;
}

static void add_int(hash *value, int number)
{
    add(value, &number, sizeof number);
}

/* With its terminator, so that "a" "bc" isn't "ab" "c". */
static void add_name(hash *value, const char *name)
{
    add(value, name, strlen(name) + 1);
}

unsigned long long topology_hash(const struct topology *topology)
{
    hash value = 14695981039346656037ull;
    add_int(&value, (int)SOURCES);
    add_int(&value, topology->levels);
    for (int i = 0; i < topology->levels; i++)
        add_name(&value, topology->level_names[i]);
    add_int(&value, topology->sites);
    for (int i = 0; i < topology->sites; i++)
        add_name(&value, topology->site_names[i]);
    add_int(&value, topology->nodes);
    for (int i = 0; i < topology->nodes; i++) {
        const struct node *node = &topology->node[i];
        add_name(&value, node->name);
        add(&value, node->place, (size_t)topology->levels * sizeof *node->place);
    }
    for (int i = 0; i < topology->values; i++)
        add_name(&value, topology->value_names[i]);
    add_int(&value, topology->reorder);
    add_int(&value, topology->groups);
    for (int i = 0; i < topology->groups; i++)
        add_name(&value, topology->group_names[i]);
    add(&value, topology->group_ends, (size_t)topology->groups * sizeof *topology->group_ends);
    add(&value, topology->path, (size_t)topology->sites * (size_t)topology->sites * sizeof *topology->path);
    add(&value, topology->world, (size_t)topology->world_size * sizeof *topology->world);
    return value ? value : 1;
}
