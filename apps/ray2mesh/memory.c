#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

static void *there(void *memory, size_t bytes)
{
    if (!memory) {
        fprintf(stderr, "ray2mesh: there is no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

void *allocate(size_t bytes)
{
    return there(calloc(1, bytes ? bytes : 1), bytes);
}

void *resize(void *array, size_t bytes)
{
    return there(realloc(array, bytes ? bytes : 1), bytes);
}
