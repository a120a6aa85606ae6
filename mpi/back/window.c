#include "window.h"

#include <math.h>

/* How much the window grows in each round trip while nothing waits in a queue. On a link that is as fast as it was
 * measured, the block more than fills it has each wait as long as that. */
#define GROWTH 1.25

/* Round trips that a message takes at least, on a link that is much faster than it was measured. */
#define ROUND_TRIPS 5

static int smaller(double a, int b)
{
    return a < b ? (int)a : b;
}

struct window window_make(const struct shape *shape, int blocks, double block_bytes, double trips)
{
    struct window window = { .blocks = blocks, .ahead = blocks, .seconds = trips * shape->wan_rtt_seconds };
    if (block_bytes > 0)
        window.ahead = smaller(ceil(window.seconds * shape->wan_bytes_per_second / block_bytes) + 1, blocks);
    window.most = smaller(blocks * trips / ROUND_TRIPS + 1, blocks);
    return window;
}

void window_heard(struct window *window, int heard, double seconds)
{
    int ahead = seconds > 0 ? smaller(ceil(GROWTH * heard * window->seconds / seconds), window->most) : window->most;
    if (ahead > window->ahead)
        window->ahead = ahead;
}
