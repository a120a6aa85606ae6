#include "asked.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "../choice.h"
#include "../say.h"

#define UNREAD (-3)

static atomic_int value = UNREAD;

static int read_environment(void)
{
    const char *name = getenv("ISTHMUS_COLL");
    int algorithm = asked_algorithm(name);
    if (algorithm != -2)
        return algorithm;
    say("ISTHMUS_COLL=%.40s is none of auto, native, leaders, segments, lanes, scattered: auto is taken", name);
    return CHOICE_AUTO;
}

int asked(void)
{
    int known = atomic_load_explicit(&value, memory_order_relaxed);
    if (known != UNREAD)
        return known;
    int read = read_environment();
    int expected = UNREAD;
    return atomic_compare_exchange_strong(&value, &expected, read) ? read : expected;
}
