#include <stdlib.h>
#include <string.h>

#include "messages.h"

/* Ranks count from the root on. */
static int from_root(const struct group *group, int root)
{
    return (group->me - root + group->size) % group->size;
}

static void add(struct tree *tree, const struct group *group, int root, int place)
{
    if (place < group->size && tree->children < CHILDREN_MAX)
        tree->child[tree->children++] = (place + root) % group->size;
}

struct tree tree_of_doubling(const struct group *group, int root)
{
    struct tree tree = {.parent = -1};
    int place = from_root(group, root), distance = 1;
    for (; distance <= place; distance *= 2)
        ;
    if (place > 0)
        tree.parent = (place - distance / 2 + root) % group->size;
    for (; distance < group->size; distance *= 2)
        add(&tree, group, root, place + distance);
    return tree;
}

struct tree tree_in_order(const struct group *group, int root)
{
    struct tree tree = {.parent = -1};
    int place = from_root(group, root), distance = 1;
    for (; distance < group->size && !(place & distance); distance *= 2)
        add(&tree, group, root, place + distance);
    if (place > 0)
        tree.parent = (place - distance + root) % group->size;
    return tree;
}

struct tree tree_of_radix(const struct group *group, int root, int radix)
{
    struct tree tree = {.parent = -1};
    int place = from_root(group, root), distance = 1;
    for (; distance < group->size && place % (radix * distance) == 0; distance *= radix)
        ;
    if (place > 0)
        tree.parent = (place - place % (radix * distance) + root) % group->size;
    for (distance /= radix; distance > 0; distance /= radix)
        for (int i = 1; i < radix; i++)
            add(&tree, group, root, place + i * distance);
    return tree;
}

struct tree tree_of_two(const struct group *group, int root)
{
    struct tree tree = {.parent = -1};
    int place = from_root(group, root), first = 0, width = 1;
    /* Levels have 1, 2, 4 ranks and so on. */
    for (; first + width <= place; width *= 2)
        first += width;
    add(&tree, group, root, place + width);
    add(&tree, group, root, place + 2 * width);
    if (place > 0) {
        int above = place - width / 2;
        tree.parent = ((above < first ? above : above - width / 2) + root) % group->size;
    }
    return tree;
}

int bcast_along(const struct group *group, void *bytes, long length, const struct tree *tree, int at_once)
{
    MPI_Request requests[CHILDREN_MAX];
    int rc = tree->parent < 0 ? MPI_SUCCESS : take(group, bytes, length, tree->parent);
    for (int i = 0; i < tree->children && rc == MPI_SUCCESS; i++)
        rc = at_once ? start_giving(group, bytes, length, tree->child[i], &requests[i])
                     : give(group, bytes, length, tree->child[i]);
    return at_once && rc == MPI_SUCCESS ? PMPI_Waitall(tree->children, requests, MPI_STATUSES_IGNORE) : rc;
}

int bcast_from_root(const struct group *group, void *bytes, long length, int root)
{
    if (group->me != root)
        return take(group, bytes, length, root);
    MPI_Request *requests = malloc((size_t)group->size * sizeof(MPI_Request));
    if (!requests)
        return MPI_ERR_NO_MEM;
    int number = 0, rc = MPI_SUCCESS;
    for (int to = 0; to < group->size && rc == MPI_SUCCESS; to++)
        if (to != root)
            rc = start_giving(group, bytes, length, to, &requests[number++]);
    if (rc == MPI_SUCCESS)
        rc = PMPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    free(requests);
    return rc;
}

int bcast_in_halves(const struct group *group, void *bytes, long length, long item_bytes, int root)
{
    struct tree tree = tree_of_two(group, root);
    long first = (length / item_bytes + 1) / 2 * item_bytes;
    char *parts[2] = {bytes, (char *)bytes + first};
    long lengths[2] = {first, length - first};
    int size = group->size, place = from_root(group, root), half = (place + 1) % 2, rc = MPI_SUCCESS;
    /* Ranks at odd places are in the left half of the tree. */
    if (place > 0)
        rc = take(group, parts[half], lengths[half], tree.parent);
    for (int i = 0; i < tree.children && rc == MPI_SUCCESS; i++) {
        int part = place > 0 ? half : i;
        rc = give(group, parts[part], lengths[part], tree.child[i]);
    }
    if (rc != MPI_SUCCESS)
        return rc;
    int last = (root + size - 1) % size, even = size % 2 == 0;
    if (place == 0)
        return even ? give(group, parts[1], lengths[1], last) : rc;
    if (even && group->me == last)
        return take(group, parts[1], lengths[1], root);
    int pair = (group->me + (half == 0 ? 1 : size - 1)) % size;
    return swap(group, parts[half], lengths[half], pair, parts[1 - half], lengths[1 - half], pair);
}

int reduce_along(const struct group *group, const struct vector *vector, const void *given, void *sum,
                 const struct tree *tree, int ahead)
{
    long length = (long)vector->count * vector->item_bytes;
    if (!tree->children && tree->parent >= 0)
        return give(group, given, length, tree->parent);
    char *total = malloc((size_t)length + 1), *taken[2] = {malloc((size_t)length + 1), malloc((size_t)length + 1)};
    MPI_Request requests[CHILDREN_MAX];
    int rc = total && taken[0] && taken[1] ? MPI_SUCCESS : MPI_ERR_NO_MEM, started = 0;
    if (rc == MPI_SUCCESS)
        memcpy(total, given, (size_t)length);
    for (int i = 0; i < tree->children && rc == MPI_SUCCESS; i++) {
        for (; started < tree->children && started <= i + (ahead ? 1 : 0) && rc == MPI_SUCCESS; started++)
            rc = start_taking(group, taken[started % 2], length, tree->child[started], &requests[started]);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS)
            rc = combine(vector, taken[i % 2], total, vector->count);
    }
    if (rc == MPI_SUCCESS && tree->parent >= 0)
        rc = give(group, total, length, tree->parent);
    else if (rc == MPI_SUCCESS)
        memcpy(sum, total, (size_t)length);
    free(total), free(taken[0]), free(taken[1]);
    return rc;
}
