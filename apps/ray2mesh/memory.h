/* Memory that is there, or the program ends. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>

/* Zeroed memory. Never NULL. */
void *allocate(size_t bytes);

/* An array that grows, as realloc() does. Never NULL. */
void *resize(void *array, size_t bytes);

#endif
