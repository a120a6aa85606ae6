/* How long blocks of uneven operations may be: what one rank holds of them, an int counts. */
#include "../../back/collectives/block_limits.h"

#include "unit.h"

static const struct {
    int size;
    size_t block, pair;     /* the longest block of Gatherv and of Alltoallv over the leaders */
} table[] = {
    {2, 65536, 4096},
    {64, 65536, 4096},
    {128, 65536, 1024},
    {2896, 65536, 256},
    {2897, 65536, 255},
    {32767, 65536, 2},
    {32768, 65535, 1},
    {46340, 46341, 1},
    {46341, 46340, 0},
    {1000000, 2147, 0},
    {INT_MAX, 1, 0},
};

int main(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int size = table[i].size;
        size_t block = table[i].block, pair = table[i].pair;
        CHECK(!is_large(block, size) && is_large(block + 1, size), "%d ranks", size);
        CHECK(block * (size_t)size <= INT_MAX, "%d ranks", size);
        CHECK(small_bytes(size) == pair, "%d ranks: %zu", size, small_bytes(size));
        CHECK(pair * (size_t)size * (size_t)size <= INT_MAX, "%d ranks", size);
        CHECK(has_countable_pairs(size) == (pair > 0), "%d ranks", size);
    }
    return finish("limits");
}
