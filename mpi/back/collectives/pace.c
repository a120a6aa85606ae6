#include "pace.h"

#include "../real.h"

void pace_make(struct call *call, struct pace *pace, struct window window)
{
    *pace = (struct pace){
        .window = window,
        .moment = call_memory(call, (size_t)window.blocks * sizeof *pace->moment),
        .heard_then = call_ints(call, window.blocks),
    };
}

int pace_may_send(const struct pace *pace)
{
    return pace->sent < pace->window.blocks && pace->sent - pace->heard < pace->window.ahead;
}

int pace_send(struct pace *pace)
{
    int block = pace->sent++;
    pace->moment[block] = real.Wtime();
    pace->heard_then[block] = pace->heard;
    return block;
}

void pace_hear(struct pace *pace)
{
    int block = pace->heard++;
    window_heard(&pace->window, pace->heard - pace->heard_then[block], real.Wtime() - pace->moment[block]);
}
