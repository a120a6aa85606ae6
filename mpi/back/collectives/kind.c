#include "kind.h"

#include <stdint.h>
#include <string.h>

#include "../alone.h"
#include "../real.h"

#define ALIGNMENT 16

int kind_of_type(struct kind *kind, MPI_Datatype type)
{
    int size, integers, addresses, types, combiner;
    if (is_bad_type(type) || real.Type_size(type, &size) != MPI_SUCCESS || size < 0 ||
        real.Type_get_extent(type, &kind->lb, &kind->extent) != MPI_SUCCESS ||
        real.Type_get_true_extent(type, &kind->true_lb, &kind->true_extent) != MPI_SUCCESS ||
        real.Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
        return 0;
    kind->type = type;
    kind->size = (size_t)size;
    kind->plain = combiner == MPI_COMBINER_NAMED && kind->lb == 0 && kind->true_lb == 0 &&
                  kind->extent == size && kind->true_extent == size;
    return 1;
}

int kind_of(struct kind *kind, const void *buffer, int count, MPI_Datatype type)
{
    return count >= 0 && kind_of_type(kind, type) && !is_missing(kind, buffer, count);
}

/* Data with absolute addresses, which MPICH 4's MPI_Pack takes for no buffer. Any type may be
 * sent and received as MPI_PACKED instead (MPI-4.1, 5.2). */
static int is_bottom(const void *buffer)
{
    return buffer == MPI_BOTTOM;
}

void stream_write(struct call *call, const struct kind *kind, const void *buffer, int count, char *stream)
{
    size_t length = (size_t)count * kind->size;
    int position = 0;
    if (!call_ok(call) || length == 0)
        return;
    if (kind->plain)
        memmove(stream, buffer, length);
    else if (is_bottom(buffer))
        call_to_self(call, buffer, count, kind->type, stream, (int)length, MPI_PACKED);
    else
        CALL_DO(call, real.Pack(buffer, count, kind->type, stream, (int)length, &position, call->spread->wire));
}

void stream_read(struct call *call, const struct kind *kind, const char *stream, void *buffer, int count)
{
    size_t length = (size_t)count * kind->size;
    int position = 0;
    if (!call_ok(call) || length == 0 || stream == buffer)
        return;
    if (kind->plain)
        memmove(buffer, stream, length);
    else if (is_bottom(buffer))
        call_to_self(call, stream, (int)length, MPI_PACKED, buffer, count, kind->type);
    else
        CALL_DO(call, real.Unpack(stream, (int)length, &position, buffer, count, kind->type, call->spread->wire));
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
    if (!call_ok(call) || from == to || (size_t)count * kind->size == 0)
        return;
    if (kind->plain) {
        memcpy(to, from, (size_t)count * kind->size);
        return;
    }
    call_to_self(call, from, count, kind->type, to, count, kind->type);
}
