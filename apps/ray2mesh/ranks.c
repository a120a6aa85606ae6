#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "../../mpi/include/isthmus_mpi.h"
#include "memory.h"

/* A boss and two workers. */
enum { LEAST = 3 };

/* Makes the lowest rank that isn't a boss the boss of a place's others. `boss` tells who is one. */
static void appoint(int size, const int *color, int place, int *parent, char *boss)
{
    int first = -1, members = 0, siblings = 0;
    for (int rank = 1; rank < size; rank++)
        if (color[rank] == place && !boss[rank]) {
            first = first < 0 ? rank : first;
            members++;
        }
    if (members < LEAST)
        return;
    /* All that the parent has: another boss would only stand between them. */
    for (int rank = 1; rank < size; rank++)
        siblings += parent[rank] == parent[first];
    if (siblings == members)
        return;
    for (int rank = first + 1; rank < size; rank++)
        if (color[rank] == place && !boss[rank])
            parent[rank] = first;
    boss[first] = 1;
}

static void appoint_all(MPI_Comm comm, int size, int *parent, char *boss)
{
    int levels, *color = allocate((size_t)size * sizeof *color);
    isthmus_levels(comm, &levels);
    for (int level = 1; level < levels; level++) {
        char name[64];
        isthmus_level_name(comm, level, name, sizeof name);
        if (strcmp(name, "node") == 0)
            break;
        for (int rank = 0; rank < size; rank++)
            isthmus_color(comm, rank, level, &color[rank]);
        for (int place = 0; place < size; place++)
            appoint(size, color, place, parent, boss);
    }
    free(color);
}

static int is_below(const int *parent, int rank, int above)
{
    while (rank > 0 && rank != above)
        rank = parent[rank];
    return rank == above;
}

struct ranks ranks_of(MPI_Comm comm, int with_bosses)
{
    int size, rank;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    int *parent = allocate((size_t)size * sizeof *parent);
    char *boss = allocate((size_t)size);
    parent[0] = -1;
    if (with_bosses)
        appoint_all(comm, size, parent, boss);
    struct ranks ranks = {.parent = parent[rank]};
    ranks.child = allocate((size_t)size * sizeof *ranks.child);
    ranks.workers = allocate((size_t)size * sizeof *ranks.workers);
    for (int other = 1; other < size; other++) {
        ranks.all_bosses += boss[other];
        if (parent[other] != rank)
            continue;
        ranks.child[ranks.children] = other;
        for (int below = 1; below < size; below++)
            ranks.workers[ranks.children] += !boss[below] && is_below(parent, below, other);
        ranks.children++;
    }
    free(parent);
    free(boss);
    return ranks;
}

void ranks_free(struct ranks *ranks)
{
    free(ranks->child);
    free(ranks->workers);
}
