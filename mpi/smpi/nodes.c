#include <stdlib.h>

#include "../back/state.h"
#include "own.h"

static struct nodes *find(void)
{
    const struct topology *topology = state_topology();
    struct group world = group_of(MPI_COMM_WORLD);
    if (!topology || topology->world_size < world.size)
        return NULL;
    int size = world.size, *numbers = malloc((size_t)topology->nodes * sizeof(int));
    int *lists = malloc(4 * (size_t)size * sizeof(int));
    struct nodes *nodes = malloc(sizeof *nodes);
    if (!numbers || !lists || !nodes)
        goto none;
    int *leaders = lists, *members = lists + size, found = 0, together = 0;
    *nodes = (struct nodes){.of_rank = lists + 2 * size, .within = lists + 3 * size};
    nodes->leaders = (struct group){.comm = MPI_COMM_WORLD, .ranks = leaders};
    nodes->node = (struct group){.comm = MPI_COMM_WORLD, .ranks = members};
    for (int i = 0; i < topology->nodes; i++)
        numbers[i] = -1;
    for (int rank = 0; rank < size; rank++) {
        int node = topology->world[rank], number = numbers[node];
        if (number < 0) {
            number = numbers[node] = found;
            leaders[found++] = rank;
        } else {
            together = 1;
        }
        nodes->of_rank[rank] = number;
    }
    for (int rank = 0; rank < size; rank++)
        numbers[topology->world[rank]] = 0;
    for (int rank = 0; rank < size; rank++) {
        nodes->within[rank] = numbers[topology->world[rank]]++;
        if (nodes->of_rank[rank] == nodes->of_rank[world.me])
            members[nodes->node.size++] = rank;
    }
    nodes->leaders.size = found;
    nodes->leaders.me = nodes->of_rank[world.me];
    nodes->node.me = nodes->within[world.me];
    free(numbers);
    if (together)
        return nodes;
    numbers = NULL;
none:
    free(numbers), free(lists), free(nodes);
    return NULL;
}

const struct nodes *nodes_of_world(void)
{
    static struct nodes *nodes;
    static int is_known;
    /* The topology isn't known before the library has started. */
    if (!is_known && state_topology()) {
        nodes = find();
        is_known = 1;
    }
    return nodes;
}
