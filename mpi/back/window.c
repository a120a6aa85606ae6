#include "window.h"

#include <math.h>

/* How much the window grows in each round trip while nothing waits in a queue. On a link that is as fast as it was
 * measured, the block more than fills it has each wait as long as that. */
#define GROWTH 1.25

static int at_most(const struct window *window, double ahead)
{
    return ahead < window->blocks ? (int)ahead : window->blocks;
}

struct window window_make(const struct shape *shape, int blocks, double block_bytes, double trips)
{
    struct window window = { .blocks = blocks, .ahead = blocks, .seconds = trips * shape->wan_rtt_seconds };
    if (block_bytes > 0)
        window.ahead = at_most(&window, ceil(window.seconds * shape->wan_bytes_per_second / block_bytes) + 1);
    return window;
}

void window_heard(struct window *window, int heard, double seconds)
{
    int ahead = seconds > 0 ? at_most(window, ceil(GROWTH * heard * window->seconds / seconds)) : window->blocks;
    if (ahead > window->ahead)
        window->ahead = ahead;
}
