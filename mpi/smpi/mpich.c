/* What MPICH 5 takes by itself with the device ch4: maint/tuning/coll/ch4/generic.json says how the ranks of nodes
 * work together, maint/tuning/coll/mpir/generic.json which algorithm those take that send over the network. Within
 * a node it has algorithms over shared memory; here ranks of a node send to each other. */
#include <stdlib.h>

#include "own.h"

static int is_power_of_two(int size)
{
    return power_of_two(size) == size;
}

/* Over the network, whoever shares a node. */
static int flat_bcast(const struct group *group, void *bytes, long length, int root)
{
    if (group->size < 8 || length <= 12288) {
        struct tree tree = tree_in_order(group, root);
        /* The largest subtree first. */
        for (int i = 0, j = tree.children - 1; i < j; i++, j--) {
            int child = tree.child[i];
            tree.child[i] = tree.child[j];
            tree.child[j] = child;
        }
        return bcast_along(group, bytes, length, &tree, 0);
    }
    return bcast_in_pieces(group, bytes, length, root, !is_power_of_two(group->size) || length > 524288);
}

static int flat_reduce(const struct group *group, const struct vector *vector, const void *given, void *sum, int root)
{
    long bytes = (long)vector->count * vector->item_bytes;
    if (bytes > 2048 && vector->count >= power_of_two(group->size))
        return reduce_in_pieces(group, vector, given, sum, root);
    struct tree tree = tree_in_order(group, root);
    return reduce_along(group, vector, given, sum, &tree, 0);
}

static int flat_allreduce(const struct group *group, const struct vector *vector, const void *given, void *sum)
{
    long bytes = (long)vector->count * vector->item_bytes;
    if (bytes <= 8 || vector->count < power_of_two(group->size))
        return allreduce_by_doubling(group, vector, given, sum);
    return allreduce_in_pieces(group, vector, given, sum, 0);
}

static int is_leader(const struct nodes *nodes)
{
    return nodes->node.me == 0;
}

static int barrier(const struct group *group)
{
    const struct nodes *nodes = nodes_of_world();
    if (!nodes)
        return barrier_by_dissemination(group);
    int rc = barrier_by_dissemination(&nodes->node);
    if (rc == MPI_SUCCESS && is_leader(nodes))
        rc = barrier_by_dissemination(&nodes->leaders);
    char byte = 0;
    return rc == MPI_SUCCESS ? flat_bcast(&nodes->node, &byte, 1, 0) : rc;
}

static int bcast(const struct group *group, void *bytes, long length, int item_bytes, int root)
{
    (void)item_bytes;
    const struct nodes *nodes = nodes_of_world();
    long flat_from = group->size < 8 ? length + 1 : is_power_of_two(group->size) ? 524288 : 12288;
    if (!nodes || length >= flat_from)
        return flat_bcast(group, bytes, length, root);
    int node = nodes->of_rank[root], within = nodes->within[root], rc = MPI_SUCCESS;
    /* The root's node has it first. */
    if (within > 0 && nodes->leaders.me == node)
        rc = nodes->node.me == within ? give(&nodes->node, bytes, length, 0)
             : is_leader(nodes)       ? take(&nodes->node, bytes, length, within)
                                      : MPI_SUCCESS;
    if (rc == MPI_SUCCESS && is_leader(nodes))
        rc = flat_bcast(&nodes->leaders, bytes, length, node);
    return rc == MPI_SUCCESS ? flat_bcast(&nodes->node, bytes, length, 0) : rc;
}

/* The sum of a node's ranks goes to its first one, and from there on. `sum` is that of rank 0. */
static int reduce_to_first(const struct nodes *nodes, const struct vector *vector, const void *given, void *sum, void *part,
                           int everywhere)
{
    struct tree tree = tree_in_order(&nodes->node, 0);
    int alone = nodes->node.size == 1;
    int rc = alone ? MPI_SUCCESS : reduce_along(&nodes->node, vector, given, part, &tree, 0);
    if (rc != MPI_SUCCESS || !is_leader(nodes))
        return rc;
    const void *own = alone ? given : part;
    return everywhere ? flat_allreduce(&nodes->leaders, vector, own, sum) : flat_reduce(&nodes->leaders, vector, own, sum, 0);
}

static int reduce(const struct group *group, const struct vector *vector, const void *given, void *sum, int root)
{
    const struct nodes *nodes = nodes_of_world();
    if (!nodes)
        return flat_reduce(group, vector, given, sum, root);
    size_t bytes = (size_t)vector->count * (size_t)vector->item_bytes;
    char *part = malloc(bytes + 1), *total = group->me == 0 && root != 0 ? malloc(bytes + 1) : sum;
    int rc = part && (total || group->me != 0) ? reduce_to_first(nodes, vector, given, total, part, 0) : MPI_ERR_NO_MEM;
    if (rc == MPI_SUCCESS && root != 0 && group->me == 0)
        rc = give(group, total, (long)bytes, root);
    else if (rc == MPI_SUCCESS && root != 0 && group->me == root)
        rc = take(group, sum, (long)bytes, 0);
    if (total != sum)
        free(total);
    free(part);
    return rc;
}

static int allreduce(const struct group *group, const struct vector *vector, const void *given, void *sum)
{
    const struct nodes *nodes = nodes_of_world();
    if (!nodes || nodes->leaders.size == 1)
        return flat_allreduce(group, vector, given, sum);
    size_t bytes = (size_t)vector->count * (size_t)vector->item_bytes;
    char *part = malloc(bytes + 1);
    int rc = part ? reduce_to_first(nodes, vector, given, sum, part, 1) : MPI_ERR_NO_MEM;
    free(part);
    return rc == MPI_SUCCESS ? flat_bcast(&nodes->node, sum, (long)bytes, 0) : rc;
}

static int allgather(const struct group *group, const void *block, long length, void *all)
{
    long bytes = length * group->size;
    if (is_power_of_two(group->size) && bytes < 524288)
        return allgather_by_doubling(group, block, length, all);
    if (!is_power_of_two(group->size) && bytes < 81920)
        return allgather_by_dissemination(group, block, length, all);
    return allgather_in_ring(group, block, length, all);
}

const struct algorithms mpich_algorithms = {
    barrier, bcast, reduce, allreduce, gather_along_tree, scatter_along_tree, allgather,
};
