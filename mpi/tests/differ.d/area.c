#include "differ.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 64

uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint32_t roll(struct dice *dice, uint32_t below)
{
    dice->state = mix(dice->state, 1);
    return below ? (uint32_t)(dice->state >> 33) % below : 0;
}

int some_units(struct dice *dice, int most)
{
    static const int sizes[] = { 0, 1, 1, 2, 3, 7, 33, 500 };
    if (roll(dice, 8) == 0)
        return (int)roll(dice, (uint32_t)most);
    int units = sizes[roll(dice, sizeof sizes / sizeof *sizes)];
    return units < most ? units : most;
}

void area_make(struct area *area, const struct type *type, long elements, uint64_t salt)
{
    size_t span = elements > 0 ? (size_t)((elements - 1) * type->extent + type->true_extent) : 0;
    area->type = type;
    area->bytes = span + 2 * GUARD;
    area->no_address = elements == 0;
    area->origin = (size_t)(GUARD - type->true_lb);
    area->ours = malloc(3 * area->bytes);
    if (area->ours == NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
    area->theirs = area->ours + area->bytes;
    area->before = area->theirs + area->bytes;
    for (size_t i = 0; i < area->bytes; i += sizeof salt) {
        salt = mix(salt, i);
        size_t left = area->bytes - i;
        memcpy(area->before + i, &salt, left < sizeof salt ? left : sizeof salt);
    }
    memcpy(area->ours, area->before, area->bytes);
    memcpy(area->theirs, area->before, area->bytes);
}

void area_free(struct area *area)
{
    free(area->ours);
    area->ours = NULL;
}

void *ours(const struct area *area)
{
    return area->no_address ? NULL : area->ours + area->origin;
}

void *theirs(const struct area *area)
{
    return area->no_address ? NULL : area->theirs + area->origin;
}

int area_same(const struct area *area, int constant)
{
    return memcmp(area->ours, area->theirs, area->bytes) == 0 &&
           (!constant || memcmp(area->ours, area->before, area->bytes) == 0);
}
