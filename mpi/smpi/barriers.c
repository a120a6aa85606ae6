#include "messages.h"

int barrier_by_doubling(const struct group *group)
{
    int power = power_of_two(group->size), extra = group->size - power, me = group->me, rc = MPI_SUCCESS;
    if (me >= power)
        return swap(group, NULL, 0, me - power, NULL, 0, me - power);
    if (me < extra)
        rc = take(group, NULL, 0, me + power);
    for (int distance = 1; distance < power && rc == MPI_SUCCESS; distance *= 2)
        rc = swap(group, NULL, 0, me ^ distance, NULL, 0, me ^ distance);
    return me < extra && rc == MPI_SUCCESS ? give(group, NULL, 0, me + power) : rc;
}

int barrier_by_dissemination(const struct group *group)
{
    int size = group->size, me = group->me, rc = MPI_SUCCESS;
    for (int distance = 1; distance < size && rc == MPI_SUCCESS; distance *= 2)
        rc = swap(group, NULL, 0, (me + distance) % size, NULL, 0, (me - distance + size) % size);
    return rc;
}

int barrier_along_tree(const struct group *group)
{
    struct tree tree = tree_in_order(group, 0);
    int rc = MPI_SUCCESS;
    for (int i = 0; i < tree.children && rc == MPI_SUCCESS; i++)
        rc = take(group, NULL, 0, tree.child[i]);
    if (tree.parent >= 0 && rc == MPI_SUCCESS)
        rc = swap(group, NULL, 0, tree.parent, NULL, 0, tree.parent);
    for (int i = tree.children - 1; i >= 0 && rc == MPI_SUCCESS; i--)
        rc = give(group, NULL, 0, tree.child[i]);
    return rc;
}
