/* A test's checks: each says where it failed, and finish() tells the caller. */
#ifndef UNIT_H
#define UNIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int unit_failed, unit_checked;

#define CHECK(condition, ...) \
    do { \
        unit_checked++; \
        if (!(condition)) { \
            unit_failed++; \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
        } \
    } while (0)

static inline int finish(const char *name)
{
    printf("%s: %d checks, %d failed\n", name, unit_checked, unit_failed);
    return unit_failed != 0;
}

#endif
