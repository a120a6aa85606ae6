/* MPI_Alltoall and MPI_Alltoallv (MPI-4.1, 6.8). */
#include "collectives.h"

#include "../alone.h"
#include "../real.h"
#include "exchange.h"
#include "kind.h"
#include "uneven.h"

int coll_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm)
{
    struct call call;
    struct kind kind, own_kind;
    if (!call_begin(&call, OP_ALLTOALL, comm) || !kind_of(&kind, recv, recv_count, recv_type) ||
        (send != MPI_IN_PLACE && !kind_of(&own_kind, send, send_count, send_type)) ||
        (is_equal(send, send_count, send_type, recv, recv_count, recv_type) &&
         REFUSED(real.Alltoall(send, send_count, send_type, recv, recv_count, recv_type, alone()))))
        goto native;
    const void *from = send == MPI_IN_PLACE ? recv : send;
    const struct kind *from_kind = send == MPI_IN_PLACE ? &kind : &own_kind;
    int size = call.layout->size, from_count = send == MPI_IN_PLACE ? recv_count : send_count;
    size_t bytes = (size_t)recv_count * kind.size, row = bytes * (size_t)size;
    if (!call_takes(&call, row, row * (size_t)size, 1))
        goto native;
    int *lengths = call_ints(&call, size);
    char *out = call_memory(&call, row), *in = call_memory(&call, row);
    for (int r = 0; r < size && call_ok(&call); r++) {
        lengths[r] = (int)bytes;
        stream_write(&call, from_kind, element(from_kind, from, (long long)r * from_count), from_count, out + (size_t)r * bytes);
    }
    if (call_ok(&call))
        exchange(&call, lengths, lengths, out, in);
    for (int r = 0; r < size && call_ok(&call); r++)
        stream_read(&call, &kind, in + (size_t)r * bytes, element(&kind, recv, (long long)r * recv_count), recv_count);
    return call_end(&call);
native:
    return real.Alltoall(send, send_count, send_type, recv, recv_count, recv_type, comm);
}

/* One side of MPI_Alltoallv: blocks in a buffer. */
struct side {
    const int *counts, *displs;
    struct kind kind;
    char *buffer;
    int *small;      /* [size] bytes of those that go over the leaders, 0 for others */
    size_t total;    /* of these */
};

static void sort_out(struct call *call, struct side *side)
{
    int size = call->layout->size;
    side->small = call_ints(call, size);
    side->total = 0;
    for (int r = 0; r < size && call_ok(call); r++) {
        size_t bytes = (size_t)side->counts[r] * side->kind.size;
        side->small[r] = bytes <= small_bytes(size) ? (int)bytes : 0;
        side->total += (size_t)side->small[r];
    }
}

static int goes_directly(const struct side *side, int rank)
{
    return side->small[rank] == 0 && (size_t)side->counts[rank] * side->kind.size > 0;
}

static char *block(const struct side *side, int rank)
{
    return element(&side->kind, side->buffer, side->displs[rank]);
}

/* A block in a buffer into which others are received must be copied before it is sent. */
static void send_directly(struct call *call, const struct side *from, const struct side *to, int in_place)
{
    int size = call->layout->size, own = call->layout->rank;
    char **copy = call_memory(call, (size_t)size * sizeof *copy);
    for (int r = 0; r < size && call_ok(call); r++) {
        copy[r] = block(from, r);
        if (!in_place || !goes_directly(from, r))
            continue;
        copy[r] = elements_memory(call, &from->kind, from->counts[r]);
        elements_copy(call, &from->kind, block(from, r), copy[r], from->counts[r]);
    }
    for (int r = 0; r < size && call_ok(call); r++)
        if (goes_directly(to, r))
            call_receive(call, block(to, r), to->counts[r], to->kind.type, r, TAG_DIRECT);
    for (int i = 0; i < size && call_ok(call); i++) {
        int r = in_turn(own, i, size);
        if (goes_directly(from, r))
            call_send(call, copy[r], from->counts[r], from->kind.type, r, TAG_DIRECT);
    }
}

static void alltoallv(struct call *call, struct side *from, struct side *to, int in_place)
{
    int size = call->layout->size;
    sort_out(call, from);
    sort_out(call, to);
    if (!call_ok(call))
        return;
    char *out = call_memory(call, from->total), *in = call_memory(call, to->total), *at = out;
    for (int r = 0; r < size && call_ok(call); r++) {
        if (from->small[r] > 0)
            stream_write(call, &from->kind, block(from, r), from->counts[r], at);
        at += from->small[r];
    }
    send_directly(call, from, to, in_place);
    if (call_ok(call))
        exchange(call, from->small, to->small, out, in);
    for (int r = 0; r < size && call_ok(call); r++) {
        if (to->small[r] > 0)
            stream_read(call, &to->kind, in, block(to, r), to->counts[r]);
        in += to->small[r];
    }
}

int coll_Alltoallv(const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
                   void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm)
{
    struct call call;
    int in_place = send == MPI_IN_PLACE;
    struct side to = { .counts = recv_counts, .displs = recv_displs, .buffer = recv };
    struct side from = { .counts = send_counts, .displs = send_displs, .buffer = (char *)send };
    if (!call_begin(&call, OP_ALLTOALL, comm) || !has_countable_pairs(call.layout->size) ||
        uneven_wrong(recv_counts, recv_displs, call.layout->size) || !kind_of_type(&to.kind, recv_type))
        goto native;
    if (send == recv && send_counts == recv_counts && send_displs == recv_displs && send_type == recv_type &&
        REFUSED(real.Alltoallv(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type,
                               alone())))
        goto native;
    if (in_place)
        from = to;
    else if (uneven_wrong(send_counts, send_displs, call.layout->size) || !kind_of_type(&from.kind, send_type))
        goto native;
    if (!call_takes_uneven(&call))
        goto native;
    alltoallv(&call, &from, &to, in_place);
    return call_end(&call);
native:
    return real.Alltoallv(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm);
}
