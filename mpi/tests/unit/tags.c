/* Tags: how those of an MPI are divided, and which numbers are given. */
#include "../../back/tags.h"

#include <limits.h>

#include "unit.h"

static const struct {
    int most;       /* the MPI's largest tag */
    int numbers, sequence;
} table[] = {
    {32767, 128, 32},
    {0, 128, 32},
    {65535, 128, 64},
    {(1 << 17) - 1, 256, 64},
    {1000000, 512, 128},
    {(1 << 20) - 1, 1024, 128},
    {(1 << 22) - 1, 1024, 512},
    {(1 << 28) - 1, 1024, 4096},
    {INT_MAX, 1024, 4096},
};

static void check_division(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct tags tags = tags_make(table[i].most);
        int most = table[i].most < TAG_MOST_LEAST ? TAG_MOST_LEAST : table[i].most;
        CHECK(tags.numbers == table[i].numbers && tags.sequence == table[i].sequence, "%d: %d, %d", table[i].most,
              tags.numbers, tags.sequence);
        int last = tag_make(&tags, tags.numbers - 1, (unsigned)tags.sequence - 1, TAGS_OF_CALL - 1);
        CHECK(last <= most && last + 1 == tags.numbers * tags.sequence * TAGS_OF_CALL, "%d: %d", most, last);
        CHECK(tag_make(&tags, 0, 0, 0) == 0, "the first");
    }
}

/* No two of a communicator, of calls near each other, or of a call's messages have one tag. */
static void check_difference(void)
{
    struct tags tags = tags_make(TAG_MOST_LEAST);
    static char seen[TAG_MOST_LEAST + 1];
    for (int number = 0; number < tags.numbers; number++)
        for (unsigned call = UINT_MAX; call != (unsigned)tags.sequence - 1; call++)
            for (int of_call = 0; of_call < TAGS_OF_CALL; of_call++) {
                int tag = tag_make(&tags, number, call, of_call);
                CHECK(tag >= 0 && tag <= TAG_MOST_LEAST && !seen[tag], "%d, %u, %d: %d", number, call, of_call, tag);
                seen[tag] = 1;
            }
}

static void check_numbers(void)
{
    struct numbers numbers = {{0}, 0};
    enum { LIMIT = 130 };
    for (int i = 0; i < LIMIT; i++)
        CHECK(numbers_take(&numbers, LIMIT) == i, "%d", i);
    CHECK(numbers_take(&numbers, LIMIT) == -1, "there is none left");
    numbers_give_back(&numbers, 7);
    numbers_give_back(&numbers, 64);
    CHECK(numbers_take(&numbers, LIMIT) == 7 && numbers_take(&numbers, LIMIT) == 64, "what was given back");
    CHECK(numbers_take(&numbers, LIMIT) == -1, "there is none left");
    for (int i = 0; i < LIMIT; i++)
        numbers_give_back(&numbers, i);
    /* The next one is another one, though that is free. */
    int first = numbers_take(&numbers, LIMIT);
    numbers_give_back(&numbers, first);
    CHECK(numbers_take(&numbers, LIMIT) == (first + 1) % LIMIT, "a number is given again late");
}

int main(void)
{
    check_division();
    check_difference();
    check_numbers();
    return finish("tags");
}
