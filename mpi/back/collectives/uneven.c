#include "uneven.h"

int uneven_wrong(const int *counts, const int *displs, int size)
{
    if (counts == NULL || displs == NULL)
        return 1;
    for (int r = 0; r < size; r++)
        if (counts[r] < 0)
            return 1;
    return 0;
}

/* The root has so many messages under way at a time: enough that a link is full while large ones are asked for, and few
 * enough that their queue doesn't grow with the number of ranks. */
#define AT_ONCE 16

static int is_empty(const struct kind *kind, int count)
{
    return count == 0 || kind->size == 0;
}

/* The root's messages, by number. */
struct window {
    int *numbers;
    int count;
};

static void add(struct call *call, struct window *window, int number)
{
    if (call_ok(call))
        window->numbers[window->count++] = number;
    if (call_ok(call) && window->count > AT_ONCE)
        call_wait(call, window->numbers[window->count - 1 - AT_ONCE]);
}

void direct_gather(struct call *call, const struct kind *own_kind, const void *send, int send_count,
                   const struct kind *kind, void *recv, const int *counts, const int *displs, int root)
{
    int size = call->layout->size, rank = call->layout->rank, in_place = send == MPI_IN_PLACE;
    if (!in_place && !is_empty(own_kind, send_count))
        call_send(call, send, send_count, own_kind->type, root, TAG_DIRECT);
    if (rank != root)
        return;
    struct window window = { .numbers = call_ints(call, size) };
    for (int r = 0; r < size && call_ok(call); r++)
        if (!is_empty(kind, counts[r]) && !(r == rank && in_place))
            add(call, &window, call_receive(call, element(kind, recv, displs[r]), counts[r], kind->type, r, TAG_DIRECT));
}
