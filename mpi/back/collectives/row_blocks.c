#include "row_blocks.h"

static struct row_blocks cut(const struct call *call, size_t bytes, int rows)
{
    const struct shape *shape = &call->spread->shape;
    int blocks = crossing_blocks(shape, bytes, rows, rows);
    struct window window = window_make(shape, blocks, (double)bytes * rows / blocks, 1);
    return (struct row_blocks){ bytes, window, window.ahead };
}

static size_t start_of(const struct row_blocks *row, int block)
{
    return (size_t)((unsigned long long)row->bytes * (unsigned)block / (unsigned)row->window.blocks);
}

static size_t bytes_of(const struct row_blocks *row, int block)
{
    return start_of(row, block + 1) - start_of(row, block);
}

/* Whether the sender hears of a block. */
static int hears_of(const struct row_blocks *row, int block)
{
    return block + row->untold < row->window.blocks;
}

struct going row_goes(struct call *call, const char *row, size_t bytes, int rows, int to)
{
    struct going going = { cut(call, bytes, rows), row, to, NULL };
    going.told = call_ints(call, going.blocks.window.blocks);
    for (int b = 0; b < going.blocks.window.blocks && call_ok(call); b++)
        going.told[b] = hears_of(&going.blocks, b) ? call_receive(call, NULL, 0, MPI_BYTE, to, TAG_HEARD) : -1;
    return going;
}

static void send_block(struct call *call, const struct going *going, int block)
{
    const struct row_blocks *blocks = &going->blocks;
    if (block < blocks->window.blocks)
        call_send_bytes(call, going->row + start_of(blocks, block), bytes_of(blocks, block), going->to);
}

static void hear_block(struct call *call, const struct going *going, int block)
{
    if (block < going->blocks.window.blocks)
        call_wait(call, going->told[block]);
}

void rows_send(struct call *call, const struct going *going, int count)
{
    struct pace pace;
    int longest = 0;
    for (int i = 1; i < count; i++)
        longest = going[i].blocks.window.blocks > going[longest].blocks.window.blocks ? i : longest;
    if (count == 0 || !call_ok(call))
        return;
    pace_make(call, &pace, going[longest].blocks.window);
    while (call_ok(call) && pace.sent < pace.window.blocks) {
        for (; !pace_may_send(&pace) && call_ok(call); pace_hear(&pace))
            for (int i = 0; i < count; i++)
                hear_block(call, &going[i], pace.heard);
        int block = call_ok(call) ? pace_send(&pace) : 0;
        for (int i = 0; i < count && call_ok(call); i++)
            send_block(call, &going[i], block);
    }
}

struct coming row_comes(struct call *call, char *row, size_t bytes, int rows, int from)
{
    struct coming coming = { cut(call, bytes, rows), from, NULL };
    const struct row_blocks *blocks = &coming.blocks;
    coming.arrived = call_ints(call, blocks->window.blocks);
    for (int b = 0; b < blocks->window.blocks && call_ok(call); b++)
        coming.arrived[b] = call_receive_bytes(call, row + start_of(blocks, b), bytes_of(blocks, b), from);
    return coming;
}

/* Waits for a block, if the row has it, and tells who sends of it, if they wait for that. */
static void take_block(struct call *call, const struct coming *coming, int block)
{
    if (block >= coming->blocks.window.blocks)
        return;
    call_wait(call, coming->arrived[block]);
    if (hears_of(&coming->blocks, block))
        call_send(call, NULL, 0, MPI_BYTE, coming->from, TAG_HEARD);
}

void rows_receive(struct call *call, const struct coming *coming, int count)
{
    int most = 0;
    for (int i = 0; i < count; i++)
        most = coming[i].blocks.window.blocks > most ? coming[i].blocks.window.blocks : most;
    for (int b = 0; b < most; b++)
        for (int i = 0; i < count && call_ok(call); i++)
            take_block(call, &coming[i], b);
}
