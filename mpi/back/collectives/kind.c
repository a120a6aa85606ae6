#include "kind.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "../alone.h"
#include "../real.h"

#define ALIGNMENT 16

/* What an element counts for whose size no int counts: calls with one have more bytes than this library puts together. */
#define LARGE_ELEMENT ((size_t)INT_MAX + 1)

int kind_of_type(struct kind *kind, MPI_Datatype type)
{
    int size, integers, addresses, types, combiner;
    if (is_bad_type(type) || real.Type_size(type, &size) != MPI_SUCCESS ||
        real.Type_get_extent(type, &kind->lb, &kind->extent) != MPI_SUCCESS ||
        real.Type_get_true_extent(type, &kind->true_lb, &kind->true_extent) != MPI_SUCCESS ||
        real.Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
        return 0;
    kind->type = type;
    kind->size = size < 0 ? LARGE_ELEMENT : (size_t)size;
    kind->plain = combiner == MPI_COMBINER_NAMED && kind->lb == 0 && kind->true_lb == 0 &&
                  kind->extent == size && kind->true_extent == size;
    return 1;
}

int kind_of(struct kind *kind, const void *buffer, int count, MPI_Datatype type)
{
    return count >= 0 && kind_of_type(kind, type) && !is_missing(kind, buffer, count);
}

struct kind kind_of_bytes(void)
{
    return (struct kind){ .type = MPI_BYTE, .size = 1, .extent = 1, .true_extent = 1, .plain = 1 };
}

/* Elements as one of another type, at an address. */
struct placed {
    MPI_Datatype type;
    char *address;
};

/* MPICH 4's MPI_Pack takes MPI_BOTTOM for no buffer, and cuts messages from there to the same rank short. So
 * data with absolute addresses get the address of their first byte. */
static struct placed place(struct call *call, const struct kind *kind, int count)
{
    struct placed placed = { .type = MPI_DATATYPE_NULL, .address = (char *)kind->true_lb };
    MPI_Aint back = -kind->true_lb;
    CALL_DO(call, real.Type_create_hindexed(1, &count, &back, kind->type, &placed.type));
    CALL_DO(call, real.Type_commit(&placed.type));
    return placed;
}

static void placed_free(struct placed *placed)
{
    if (placed->type != MPI_DATATYPE_NULL)
        real.Type_free(&placed->type);
}

static void pack(struct call *call, const struct kind *kind, const void *buffer, int count, char *stream, int length)
{
    int position = 0;
    MPI_Comm comm = call->spread->wire->comm;
    if (buffer != MPI_BOTTOM) {
        CALL_DO(call, real.Pack(buffer, count, kind->type, stream, length, &position, comm));
        return;
    }
    struct placed placed = place(call, kind, count);
    CALL_DO(call, real.Pack(placed.address, 1, placed.type, stream, length, &position, comm));
    placed_free(&placed);
}

static void unpack(struct call *call, const struct kind *kind, const char *stream, int length, void *buffer, int count)
{
    int position = 0;
    MPI_Comm comm = call->spread->wire->comm;
    if (buffer != MPI_BOTTOM) {
        CALL_DO(call, real.Unpack(stream, length, &position, buffer, count, kind->type, comm));
        return;
    }
    struct placed placed = place(call, kind, count);
    CALL_DO(call, real.Unpack(stream, length, &position, placed.address, 1, placed.type, comm));
    placed_free(&placed);
}

void stream_write(struct call *call, const struct kind *kind, const void *buffer, int count, char *stream)
{
    size_t length = (size_t)count * kind->size;
    if (!call_ok(call) || length == 0)
        return;
    if (kind->plain)
        memmove(stream, buffer, length);
    else
        pack(call, kind, buffer, count, stream, (int)length);
}

void stream_read(struct call *call, const struct kind *kind, const char *stream, void *buffer, int count)
{
    size_t length = (size_t)count * kind->size;
    if (!call_ok(call) || length == 0 || stream == buffer)
        return;
    if (kind->plain)
        memmove(buffer, stream, length);
    else
        unpack(call, kind, stream, (int)length, buffer, count);
}

int segment_elements(const struct kind *kind, int count)
{
    size_t elements = segment_bytes((size_t)count * kind->size) / kind->size;
    return elements < 1 ? 1 : elements > (size_t)count ? count : (int)elements;
}

char *stream_of(struct call *call, const struct kind *kind, const void *buffer, int count)
{
    if (kind->plain)
        return (char *)buffer;
    char *stream = call_memory(call, (size_t)count * kind->size);
    stream_write(call, kind, buffer, count, stream);
    return stream;
}

char *stream_room(struct call *call, const struct kind *kind, void *buffer, int count)
{
    return kind->plain ? buffer : call_memory(call, (size_t)count * kind->size);
}

char *elements_memory(struct call *call, const struct kind *kind, long long count)
{
    if (count <= 0 || kind->true_extent <= 0)
        return call_memory(call, 1);
    MPI_Aint step = kind->extent < 0 ? -kind->extent : kind->extent;
    size_t others = (size_t)(count - 1) * (size_t)step;
    char *memory = call_memory(call, others + (size_t)kind->true_extent + ALIGNMENT);
    if (memory == NULL)
        return NULL;
    /* The lowest byte is the first element's or, where they go downwards, the last's. */
    char *origin = memory - kind->true_lb + (kind->extent < 0 ? others : 0);
    return origin + (ALIGNMENT - (uintptr_t)origin % ALIGNMENT) % ALIGNMENT;
}

void elements_copy(struct call *call, const struct kind *kind, const void *from, void *to, int count)
{
    if (from != to)
        block_copy(call, kind, from, count, kind, to, count);
}

/* The greatest number that divides both. */
static size_t divisor(size_t a, size_t b)
{
    while (b > 0) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* MPI packs no element whose bytes no int counts. */
static void copy_by_message(struct call *call, const struct kind *kind, const void *from, int count,
                            const struct kind *to_kind, void *to, int to_count)
{
    int rank = call->layout->rank, arrived = call_receive(call, to, to_count, to_kind->type, rank, TAG_DIRECT);
    int sent = call_send(call, from, count, kind->type, rank, TAG_DIRECT);
    call_wait(call, arrived);
    call_wait(call, sent);
}

/* In parts that have whole elements of both types, and not more bytes than an int counts. */
void block_copy(struct call *call, const struct kind *kind, const void *from, int count, const struct kind *to_kind, void *to,
                int to_count)
{
    enum { PART_BYTES = 1 << 30 };
    size_t length = (size_t)count * kind->size, room = (size_t)to_count * to_kind->size;
    if (length > 0 && (kind->size == LARGE_ELEMENT || to_kind->size == LARGE_ELEMENT)) {
        copy_by_message(call, kind, from, count, to_kind, to, to_count);
        return;
    }
    if (call_ok(call) && length > room)
        call->code = MPI_ERR_TRUNCATE;
    if (!call_ok(call) || length == 0)
        return;
    size_t group = to_kind->size / divisor(kind->size, to_kind->size), most = PART_BYTES / kind->size / group * group;
    for (size_t done = 0, part; done < (size_t)count; done += part) {
        part = most > 0 ? most : group;
        part = part < (size_t)count - done ? part : (size_t)count - done;
        char *stream = stream_of(call, kind, element(kind, from, (long long)done), (int)part);
        stream_read(call, to_kind, stream, element(to_kind, to, (long long)(done * kind->size / to_kind->size)),
                    (int)(part * kind->size / to_kind->size));
    }
}
