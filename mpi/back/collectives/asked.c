#include "asked.h"

#include <stdlib.h>

#include "../choice.h"
#include "../say.h"

#define NAMED(value, name, ...) ", " #name

static int value = CHOICE_AUTO;

void asked_start(void)
{
    const char *name = getenv("ISTHMUS_COLL");
    int algorithm = asked_algorithm(name);
    if (algorithm != -2)
        value = algorithm;
    else
        say("ISTHMUS_COLL=%.40s is none of auto" ALGORITHMS_OF(NAMED) ": auto is taken", name);
}

int asked(void)
{
    return value;
}
