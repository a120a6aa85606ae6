#include "names.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a. */
static unsigned hash(const char *name)
{
    unsigned value = 2166136261u;
    for (; *name; name++)
        value = (value ^ (unsigned char)*name) * 16777619u;
    return value;
}

/* The slot of a name, or the free one where it belongs. */
static unsigned slot_of(const struct names *names, const char *name)
{
    unsigned at = hash(name) & (names->slots - 1);
    while (names->slot[at] && strcmp(names->name[names->slot[at] - 1], name) != 0)
        at = (at + 1) & (names->slots - 1);
    return at;
}

int names_find(const struct names *names, const char *name)
{
    return names->slots ? names->slot[slot_of(names, name)] - 1 : -1;
}

/* At most half of the slots are taken. */
static int grow(struct names *names)
{
    int room = names->room ? names->room * 2 : 64;
    char **name = realloc(names->name, (size_t)room * sizeof *name);
    if (!name)
        return -1;
    names->name = name;
    names->room = room;
    int *slot = calloc((size_t)room * 2, sizeof *slot);
    if (!slot)
        return -1;
    free(names->slot);
    names->slot = slot;
    names->slots = (unsigned)room * 2;
    for (int i = 0; i < names->count; i++)
        slot[slot_of(names, name[i])] = i + 1;
    return 0;
}

int names_add(struct names *names, char *name)
{
    if ((names->count == names->room || (unsigned)names->count * 2 >= names->slots) && grow(names) != 0)
        return -1;
    names->name[names->count] = name;
    names->slot[slot_of(names, name)] = names->count + 1;
    return names->count++;
}

void names_free(struct names *names)
{
    free(names->name);
    free(names->slot);
    *names = (struct names){0};
}
