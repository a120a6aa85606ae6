#include "tags.h"

/* The bits of a number that are enough to count so many. */
static int bits_below(int most)
{
    int bits = 0;
    while (bits < 30 && (1LL << (bits + 1)) - 1 <= most)
        bits++;
    return bits;
}

/* Numbers have the larger part of what is left: a sequence matters after errors only. */
struct tags tags_make(int most)
{
    enum { OF_CALL_BITS = 3, NUMBER_BITS = 10, SEQUENCE_BITS = 12 };
    _Static_assert(1 << OF_CALL_BITS == TAGS_OF_CALL && 1 << NUMBER_BITS == NUMBERS_MAX, "");
    int left = bits_below(most < TAG_MOST_LEAST ? TAG_MOST_LEAST : most) - OF_CALL_BITS;
    int number = left * 3 / 5 < NUMBER_BITS ? left * 3 / 5 : NUMBER_BITS;
    int sequence = left - number < SEQUENCE_BITS ? left - number : SEQUENCE_BITS;
    return (struct tags){ .numbers = 1 << number, .sequence = 1 << sequence };
}

int tag_make(const struct tags *tags, int number, unsigned sequence, int of_call)
{
    return (number * tags->sequence + (int)(sequence % (unsigned)tags->sequence)) * TAGS_OF_CALL + of_call;
}

int numbers_take(struct numbers *numbers, int limit)
{
    for (int i = 0; i < limit; i++) {
        int number = (numbers->next + i) % limit;
        unsigned long long bit = 1ULL << number % 64;
        if (numbers->taken[number / 64] & bit)
            continue;
        numbers->taken[number / 64] |= bit;
        numbers->next = (number + 1) % limit;
        return number;
    }
    return -1;
}

void numbers_give_back(struct numbers *numbers, int number)
{
    numbers->taken[number / 64] &= ~(1ULL << number % 64);
}
