/* Reductions in which pieces of a vector are added up by different ranks: Thakur, Rabenseifner and
 * Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19 (2005). */
#include <stdlib.h>
#include <string.h>

#include "messages.h"

/* Ranks of a power of two, which are left when pairs of ranks have come together. */
struct left {
    int size, extra, me; /* me is -1 where the other one of the pair goes on */
};

static struct left left_of(const struct group *group, int even_goes_on)
{
    struct left left = {.size = power_of_two(group->size)};
    left.extra = group->size - left.size;
    if (group->me >= 2 * left.extra)
        left.me = group->me - left.extra;
    else
        left.me = group->me % 2 == (even_goes_on ? 0 : 1) ? group->me / 2 : -1;
    return left;
}

static int rank_left(const struct left *left, int number, int even_goes_on)
{
    if (number >= left->extra)
        return number + left->extra;
    return 2 * number + (even_goes_on ? 0 : 1);
}

/* The first item of piece `number`. The first pieces have an item more. */
static int start_of(const struct vector *vector, int pieces, int number)
{
    int more = vector->count % pieces;
    return vector->count / pieces * number + (number < more ? number : more);
}

static char *at(const struct vector *vector, void *items, int first)
{
    return (char *)items + (size_t)first * vector->item_bytes;
}

static long length_of(const struct vector *vector, int items)
{
    return (long)items * vector->item_bytes;
}

/* One of a pair gets the sum of both: with `shared` each adds up half first. */
static int pair_up(const struct group *group, const struct vector *vector, void *sum, void *taken, int shared)
{
    int odd = group->me % 2, other = odd ? group->me - 1 : group->me + 1, half = vector->count / 2, rc;
    if (!shared) {
        if (!odd)
            return give(group, sum, length_of(vector, vector->count), other);
        rc = take(group, taken, length_of(vector, vector->count), other);
        return rc == MPI_SUCCESS ? combine(vector, taken, sum, vector->count) : rc;
    }
    int first[2] = {0, half}, items[2] = {half, vector->count - half};
    rc = swap(group, at(vector, sum, first[!odd]), length_of(vector, items[!odd]), other, at(vector, taken, first[odd]),
              length_of(vector, items[odd]), other);
    if (rc == MPI_SUCCESS)
        rc = combine(vector, at(vector, taken, first[odd]), at(vector, sum, first[odd]), items[odd]);
    if (rc != MPI_SUCCESS)
        return rc;
    return odd ? give(group, at(vector, sum, half), length_of(vector, items[1]), other)
               : take(group, at(vector, sum, half), length_of(vector, items[1]), other);
}

/* Ranks at growing distances exchange halves, until each has the sum of one piece, which is
 * at `*piece`. */
static int halve(const struct group *group, const struct left *left, const struct vector *vector, void *sum, void *taken,
                 int even_goes_on, int *piece)
{
    int low = 0, high = left->size, rc = MPI_SUCCESS;
    for (int distance = 1; distance < left->size && rc == MPI_SUCCESS; distance *= 2) {
        int other = left->me ^ distance, to = rank_left(left, other, even_goes_on), middle = (low + high) / 2;
        int bounds[2][2] = {{low, middle}, {middle, high}}, upper = left->me > other;
        int kept = start_of(vector, left->size, bounds[upper][0]);
        int kept_items = start_of(vector, left->size, bounds[upper][1]) - kept;
        int given = start_of(vector, left->size, bounds[!upper][0]);
        int given_items = start_of(vector, left->size, bounds[!upper][1]) - given;
        rc = swap(group, at(vector, sum, given), length_of(vector, given_items), to, at(vector, taken, kept),
                  length_of(vector, kept_items), to);
        if (rc == MPI_SUCCESS)
            rc = combine(vector, at(vector, taken, kept), at(vector, sum, kept), kept_items);
        low = bounds[upper][0];
        high = bounds[upper][1];
    }
    *piece = low;
    return rc;
}

/* The pieces that a rank has after it has taken those of all at smaller distances than `distance`,
 * from the farthest on. */
static void pieces_before(int size, int me, int distance, int *low, int *high)
{
    *low = 0, *high = size;
    for (int step = 1; step <= distance; step *= 2) {
        int middle = (*low + *high) / 2;
        if (me & step)
            *low = middle;
        else
            *high = middle;
    }
}

/* The other way round: ranks exchange what they have, the farthest first. */
static int put_together(const struct group *group, const struct left *left, const struct vector *vector, void *sum,
                        int even_goes_on)
{
    int rc = MPI_SUCCESS;
    for (int distance = left->size / 2; distance > 0 && rc == MPI_SUCCESS; distance /= 2) {
        int other = left->me ^ distance, to = rank_left(left, other, even_goes_on), low, high;
        pieces_before(left->size, left->me, distance, &low, &high);
        int given = start_of(vector, left->size, low), given_items = start_of(vector, left->size, high) - given;
        pieces_before(left->size, other, distance, &low, &high);
        int taken = start_of(vector, left->size, low), taken_items = start_of(vector, left->size, high) - taken;
        rc = swap(group, at(vector, sum, given), length_of(vector, given_items), to, at(vector, sum, taken),
                  length_of(vector, taken_items), to);
    }
    return rc;
}

int allreduce_by_doubling(const struct group *group, const struct vector *vector, const void *given, void *sum)
{
    struct left left = left_of(group, 0);
    long length = length_of(vector, vector->count);
    char *taken = malloc((size_t)length + 1);
    if (!taken)
        return MPI_ERR_NO_MEM;
    memcpy(sum, given, (size_t)length);
    int in_pair = group->me < 2 * left.extra;
    int rc = in_pair ? pair_up(group, vector, sum, taken, 0) : MPI_SUCCESS;
    for (int distance = 1; left.me >= 0 && distance < left.size && rc == MPI_SUCCESS; distance *= 2) {
        int to = rank_left(&left, left.me ^ distance, 0);
        rc = swap(group, sum, length, to, taken, length, to);
        if (rc == MPI_SUCCESS)
            rc = combine(vector, taken, sum, vector->count);
    }
    if (in_pair && rc == MPI_SUCCESS)
        rc = left.me < 0 ? take(group, sum, length, group->me + 1) : give(group, sum, length, group->me - 1);
    free(taken);
    return rc;
}

int allreduce_in_pieces(const struct group *group, const struct vector *vector, const void *given, void *sum, int shared)
{
    struct left left = left_of(group, shared);
    long length = length_of(vector, vector->count);
    char *taken = malloc((size_t)length + 1);
    if (!taken)
        return MPI_ERR_NO_MEM;
    memcpy(sum, given, (size_t)length);
    int in_pair = group->me < 2 * left.extra, piece;
    int rc = in_pair ? pair_up(group, vector, sum, taken, shared) : MPI_SUCCESS;
    if (left.me >= 0 && rc == MPI_SUCCESS)
        rc = halve(group, &left, vector, sum, taken, shared, &piece);
    if (left.me >= 0 && rc == MPI_SUCCESS)
        rc = put_together(group, &left, vector, sum, shared);
    if (in_pair && rc == MPI_SUCCESS) {
        int other = group->me % 2 ? group->me - 1 : group->me + 1;
        rc = left.me < 0 ? take(group, sum, length, other) : give(group, sum, length, other);
    }
    free(taken);
    return rc;
}

int reduce_in_pieces(const struct group *group, const struct vector *vector, const void *given, void *sum, int root)
{
    struct left left = left_of(group, 0);
    long length = length_of(vector, vector->count);
    char *taken = malloc((size_t)length + 1), *total = malloc((size_t)length + 1);
    int rc = taken && total ? MPI_SUCCESS : MPI_ERR_NO_MEM, piece;
    if (rc == MPI_SUCCESS)
        memcpy(total, given, (size_t)length);
    if (group->me < 2 * left.extra && rc == MPI_SUCCESS)
        rc = pair_up(group, vector, total, taken, 0);
    if (left.me >= 0 && rc == MPI_SUCCESS)
        rc = halve(group, &left, vector, total, taken, 0, &piece);
    /* The pieces go to number 0 along a binomial tree, the farthest ranks first. */
    for (int distance = left.size / 2; left.me >= 0 && distance > 0 && rc == MPI_SUCCESS; distance /= 2) {
        int other = left.me ^ distance, to = rank_left(&left, other, 0), low, high;
        pieces_before(left.size, left.me & distance ? left.me : other, distance, &low, &high);
        int first = start_of(vector, left.size, low);
        long part = length_of(vector, start_of(vector, left.size, high) - first);
        if (left.me & distance) {
            rc = give(group, at(vector, total, first), part, to);
            break;
        }
        rc = take(group, at(vector, total, first), part, to);
    }
    int holder = rank_left(&left, 0, 0);
    if (rc == MPI_SUCCESS && holder != root)
        rc = group->me == holder ? give(group, total, length, root) : group->me == root ? take(group, sum, length, holder) : rc;
    else if (rc == MPI_SUCCESS && group->me == root)
        memcpy(sum, total, (size_t)length);
    free(taken), free(total);
    return rc;
}
