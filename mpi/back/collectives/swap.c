#include "swap.h"

int swap_start(const struct swap *swap, int block, int count)
{
    return (int)((long long)count * block / swap->pace.window.blocks);
}

/* The elements of a block, from *start on. */
static int part_of(const struct swap *swap, const struct flow *flow, int block, int *start)
{
    *start = swap_start(swap, block, flow->count);
    return swap_start(swap, block + 1, flow->count) - *start;
}

void swap_begin(struct call *call, struct swap *swap, const struct kind *kind, const struct flow *out, int outs,
                const struct flow *in, int ins, size_t bytes)
{
    const struct shape *shape = &call->spread->shape;
    int blocks = swapped_blocks(shape, bytes), start;
    double over_link = (double)bytes * shape->largest * (shape->sites - 1);
    *swap = (struct swap){
        .kind = *kind,
        .out = out,
        .in = in,
        .outs = outs,
        .ins = ins,
        .arrived = call_memory(call, (size_t)blocks * (size_t)ins * sizeof *swap->arrived),
    };
    pace_make(call, &swap->pace, window_make(shape, blocks, over_link / blocks, 0.5));
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < ins && call_ok(call); i++) {
            int count = part_of(swap, &in[i], b, &start);
            swap->arrived[b * ins + i] = count > 0 ? call_receive(call, element(kind, in[i].buffer, start), count, kind->type,
                                                                  in[i].rank, TAG_ACROSS)
                                                   : -1;
        }
    }
}

static void send_block(struct call *call, struct swap *swap)
{
    int b = pace_send(&swap->pace), start;
    for (int i = 0; i < swap->outs; i++) {
        const struct flow *flow = &swap->out[i];
        int count = part_of(swap, flow, b, &start);
        if (count > 0)
            call_send(call, element(&swap->kind, flow->buffer, start), count, swap->kind.type, flow->rank, TAG_ACROSS);
    }
}

int swap_next(struct call *call, struct swap *swap)
{
    int b = swap->pace.heard;
    if (b == swap->pace.window.blocks || !call_ok(call))
        return -1;
    while (pace_may_send(&swap->pace) && call_ok(call))
        send_block(call, swap);
    for (int i = 0; i < swap->ins; i++)
        call_wait(call, swap->arrived[b * swap->ins + i]);
    if (!call_ok(call))
        return -1;
    pace_hear(&swap->pace);
    return b;
}
