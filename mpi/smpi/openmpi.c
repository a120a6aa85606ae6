/* What Open MPI 4.1 takes by itself: ompi/mca/coll/tuned/coll_tuned_decision_fixed.c. It asks for
 * the number of ranks and the bytes alone, and cuts no message. Its choices for fewer than 8 ranks and for
 * operations that don't commute are left out. */
#include "own.h"

static int barrier(const struct group *group)
{
    int size = group->size;
    if (size < 64)
        return barrier_by_doubling(group);
    if (size < 256 || (size >= 512 && size < 1024) || size >= 4096)
        return barrier_by_dissemination(group);
    return barrier_along_tree(group);
}

enum broadcast { FROM_ROOT, HALVES, OF_TWO, DOUBLING, OF_FOUR, PIECES };

static enum broadcast broadcast(int size, long bytes)
{
    if (size < 16)
        return bytes < 8 ? OF_FOUR : bytes < 64 ? OF_TWO : bytes < 4096 ? OF_FOUR : bytes < 16384 ? OF_TWO
               : bytes < 32768 ? DOUBLING : FROM_ROOT;
    if (size < 32)
        return bytes < 4096 ? OF_FOUR : bytes < 1048576 ? DOUBLING : PIECES;
    if (size < 64)
        return bytes < 2048 ? DOUBLING : OF_FOUR;
    if (size < 128)
        return OF_FOUR;
    if (size < 256)
        return bytes < 2 ? DOUBLING : bytes < 16384 ? OF_TWO : bytes < 32768 ? FROM_ROOT : bytes < 65536 ? OF_TWO : OF_FOUR;
    if (size < 1024)
        return bytes < 16384 || bytes >= 32768 ? OF_FOUR : HALVES;
    return bytes < (size < 2048 ? 524288 : 262144) ? OF_FOUR : PIECES;
}

static int bcast(const struct group *group, void *bytes, long length, int item_bytes, int root)
{
    struct tree tree;
    switch (broadcast(group->size, length)) {
    case FROM_ROOT: return bcast_from_root(group, bytes, length, root);
    case HALVES: return bcast_in_halves(group, bytes, length, item_bytes, root);
    /* Doubling is for powers of two here; others have no measured row. */
    case PIECES: return bcast_in_pieces(group, bytes, length, root, power_of_two(group->size) != group->size);
    case OF_TWO: tree = tree_of_two(group, root); break;
    case DOUBLING: tree = tree_of_doubling(group, root); break;
    default: tree = tree_of_radix(group, root, 4); break;
    }
    return bcast_along(group, bytes, length, &tree, 1);
}

static int reduce(const struct group *group, const struct vector *vector, const void *given, void *sum, int root)
{
    long bytes = (long)vector->count * vector->item_bytes;
    int of_two = bytes < (group->size < 16 ? 8192 : group->size < 32 ? 4096 : 0);
    struct tree tree = of_two ? tree_of_two(group, root) : tree_in_order(group, root);
    return reduce_along(group, vector, given, sum, &tree, 1);
}

/* A reduction and a broadcast, one after the other. */
static int reduce_and_bcast(const struct group *group, const struct vector *vector, const void *given, void *sum)
{
    int rc = reduce(group, vector, given, sum, 0);
    return rc == MPI_SUCCESS ? bcast(group, sum, (long)vector->count * vector->item_bytes, vector->item_bytes, 0) : rc;
}

static int allreduce(const struct group *group, const struct vector *vector, const void *given, void *sum)
{
    int size = group->size;
    long bytes = (long)vector->count * vector->item_bytes;
    /* Its rings double where ranks have less than an item each. */
    long doubling_below = size < 16 ? 8192 : size < 32 ? 4096 : size < 64 ? 128 : size < 256 ? 262144 : size < 512 ? 0 : 16384;
    long apart_below = size < 128 ? 0 : size < 256 ? 131072 : size < 512 ? 4096 : 2048;
    if (bytes < apart_below)
        return reduce_and_bcast(group, vector, given, sum);
    if (bytes < doubling_below || vector->count < power_of_two(size))
        return allreduce_by_doubling(group, vector, given, sum);
    return allreduce_in_pieces(group, vector, given, sum, 1);
}

static int scatter(const struct group *group, const void *all, long length, void *block, int root)
{
    int size = group->size, tree = length < (size < 32 ? 16384 : 512);
    return tree ? scatter_along_tree(group, all, length, block, root) : scatter_from_root(group, all, length, block, root);
}

static int allgather(const struct group *group, const void *block, long length, void *all)
{
    int size = group->size;
    long doubling_below = size < 32 ? length + 1 : size < 64 ? 1024 : size < 256 ? 512 : size < 512 ? 1024 : size < 1024 ? 2048 : 4096;
    long neighbors_below = size < 128 ? 65536 : size < 512 ? 131072 : length + 1;
    if (length < doubling_below)
        return power_of_two(size) == size ? allgather_by_doubling(group, block, length, all)
                                          : allgather_by_dissemination(group, block, length, all);
    if (length < neighbors_below && size % 2 == 0)
        return allgather_by_neighbors(group, block, length, all);
    return allgather_in_ring(group, block, length, all);
}

const struct algorithms openmpi_algorithms = {barrier, bcast, reduce, allreduce, gather_along_tree, scatter, allgather};
