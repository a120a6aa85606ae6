/* Blocks of all ranks, and a root's data in pieces. */
#include <stdlib.h>
#include <string.h>

#include "messages.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many places, counted from the root, are in a rank's subtree of a tree in order. */
static int subtree(const struct group *group, int place)
{
    return place == 0 ? group->size : least(place & -place, group->size - place);
}

static int place_of(const struct group *group, int rank, int root)
{
    return (rank - root + group->size) % group->size;
}

/* Copies blocks between the order of ranks and that of places. */
static void turn(const struct group *group, int root, long length, char *ranks, char *places, int to_places)
{
    size_t behind = (size_t)(group->size - root) * (size_t)length, before = (size_t)root * (size_t)length;
    if (to_places) {
        memcpy(places, ranks + before, behind);
        memcpy(places + behind, ranks, before);
    } else {
        memcpy(ranks + before, places, behind);
        memcpy(ranks, places + behind, before);
    }
}

int gather_along_tree(const struct group *group, const void *block, long length, void *all, int root)
{
    struct tree tree = tree_in_order(group, root);
    int place = place_of(group, group->me, root), blocks = subtree(group, place), rc = MPI_SUCCESS;
    if (blocks == 1 && tree.parent >= 0)
        return give(group, block, length, tree.parent);
    char *taken = malloc((size_t)length * (size_t)blocks + 1);
    if (!taken)
        return MPI_ERR_NO_MEM;
    memcpy(taken, block, (size_t)length);
    for (int i = 0; i < tree.children && rc == MPI_SUCCESS; i++) {
        int child = place_of(group, tree.child[i], root);
        rc = take(group, taken + (child - place) * length, subtree(group, child) * length, tree.child[i]);
    }
    if (rc == MPI_SUCCESS && tree.parent >= 0)
        rc = give(group, taken, blocks * length, tree.parent);
    else if (rc == MPI_SUCCESS)
        turn(group, root, length, all, taken, 0);
    free(taken);
    return rc;
}

int scatter_along_tree(const struct group *group, const void *all, long length, void *block, int root)
{
    struct tree tree = tree_in_order(group, root);
    int place = place_of(group, group->me, root), blocks = subtree(group, place), rc = MPI_SUCCESS;
    if (blocks == 1 && tree.parent >= 0)
        return take(group, block, length, tree.parent);
    char *taken = malloc((size_t)length * (size_t)blocks + 1);
    if (!taken)
        return MPI_ERR_NO_MEM;
    if (tree.parent >= 0)
        rc = take(group, taken, blocks * length, tree.parent);
    else
        turn(group, root, length, (char *)all, taken, 1);
    for (int i = tree.children - 1; i >= 0 && rc == MPI_SUCCESS; i--) {
        int child = place_of(group, tree.child[i], root);
        rc = give(group, taken + (child - place) * length, subtree(group, child) * length, tree.child[i]);
    }
    memcpy(block, taken, (size_t)length);
    free(taken);
    return rc;
}

int scatter_from_root(const struct group *group, const void *all, long length, void *block, int root)
{
    if (group->me != root)
        return take(group, block, length, root);
    MPI_Request *requests = malloc((size_t)group->size * sizeof(MPI_Request));
    if (!requests)
        return MPI_ERR_NO_MEM;
    const char *blocks = all;
    int number = 0, rc = MPI_SUCCESS;
    for (int to = 0; to < group->size && rc == MPI_SUCCESS; to++) {
        if (to == root)
            memcpy(block, blocks + to * length, (size_t)length);
        else
            rc = start_giving(group, blocks + to * length, length, to, &requests[number++]);
    }
    if (rc == MPI_SUCCESS)
        rc = PMPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    free(requests);
    return rc;
}

int allgather_by_doubling(const struct group *group, const void *block, long length, void *all)
{
    int me = group->me, rc = MPI_SUCCESS;
    char *blocks = all;
    memcpy(blocks + me * length, block, (size_t)length);
    for (int distance = 1; distance < group->size && rc == MPI_SUCCESS; distance *= 2) {
        int other = me ^ distance;
        long first = me / distance * distance, theirs = other / distance * distance;
        rc = swap(group, blocks + first * length, distance * length, other, blocks + theirs * length, distance * length, other);
    }
    return rc;
}

int allgather_by_dissemination(const struct group *group, const void *block, long length, void *all)
{
    int size = group->size, me = group->me, rc = MPI_SUCCESS;
    char *taken = malloc((size_t)length * (size_t)size + 1);
    if (!taken)
        return MPI_ERR_NO_MEM;
    memcpy(taken, block, (size_t)length);
    for (int distance = 1; distance < size && rc == MPI_SUCCESS; distance *= 2) {
        long part = least(distance, size - distance) * length;
        rc = swap(group, taken, part, (me - distance + size) % size, taken + distance * length, part, (me + distance) % size);
    }
    if (rc == MPI_SUCCESS)
        turn(group, me, length, all, taken, 0);
    free(taken);
    return rc;
}

int allgather_in_ring(const struct group *group, const void *block, long length, void *all)
{
    int size = group->size, me = group->me, rc = MPI_SUCCESS;
    char *blocks = all;
    memcpy(blocks + me * length, block, (size_t)length);
    for (int step = 0; step < size - 1 && rc == MPI_SUCCESS; step++) {
        long given = (me - step + size) % size, taken = (me - step - 1 + size) % size;
        rc = swap(group, blocks + given * length, length, (me + 1) % size, blocks + taken * length, length,
                  (me - 1 + size) % size);
    }
    return rc;
}

int allgather_by_neighbors(const struct group *group, const void *block, long length, void *all)
{
    int size = group->size, me = group->me, odd = me % 2;
    int neighbor[2] = {(me + (odd ? size - 1 : 1)) % size, (me + (odd ? 1 : size - 1)) % size};
    char *blocks = all;
    memcpy(blocks + me * length, block, (size_t)length);
    int rc = swap(group, block, length, neighbor[0], blocks + neighbor[0] * length, length, neighbor[0]);
    /* Pairs of blocks, by the first of each. */
    int given = me - odd, taken[2] = {given, given};
    for (int step = 1; step < size / 2 && rc == MPI_SUCCESS; step++) {
        int turn = step % 2, away = (turn ? -2 : 2) * (odd ? -1 : 1);
        taken[turn] = (taken[turn] + away + size) % size;
        rc = swap(group, blocks + given * length, 2 * length, neighbor[turn], blocks + taken[turn] * length, 2 * length,
                  neighbor[turn]);
        given = taken[turn];
    }
    return rc;
}

/* Piece `place` of so many bytes, which may be empty at the end. */
static long piece_length(long length, long piece, int place)
{
    long left = length - place * piece;
    return left < 0 ? 0 : left < piece ? left : piece;
}

static long pieces_length(long length, long piece, int first, int number)
{
    long sum = 0;
    for (int i = 0; i < number; i++)
        sum += piece_length(length, piece, first + i);
    return sum;
}

int bcast_in_pieces(const struct group *group, void *bytes, long length, int root, int ring)
{
    struct tree tree = tree_in_order(group, root);
    int size = group->size, place = place_of(group, group->me, root), rc = MPI_SUCCESS;
    long piece = (length + size - 1) / size;
    char *data = bytes;
    if (tree.parent >= 0)
        rc = take(group, data + place * piece, pieces_length(length, piece, place, subtree(group, place)), tree.parent);
    for (int i = tree.children - 1; i >= 0 && rc == MPI_SUCCESS; i--) {
        int child = place_of(group, tree.child[i], root);
        rc = give(group, data + child * piece, pieces_length(length, piece, child, subtree(group, child)), tree.child[i]);
    }
    for (int distance = 1; !ring && distance < size && rc == MPI_SUCCESS; distance *= 2) {
        int other = place ^ distance, rank = (other + root) % size;
        int first = place / distance * distance, theirs = other / distance * distance;
        rc = swap(group, data + first * piece, pieces_length(length, piece, first, distance), rank, data + theirs * piece,
                  pieces_length(length, piece, theirs, distance), rank);
    }
    for (int step = 0; ring && step < size - 1 && rc == MPI_SUCCESS; step++) {
        int given = (place - step + size) % size, taken = (place - step - 1 + size) % size;
        rc = swap(group, data + given * piece, piece_length(length, piece, given), (group->me + 1) % size,
                  data + taken * piece, piece_length(length, piece, taken), (group->me - 1 + size) % size);
    }
    return rc;
}
