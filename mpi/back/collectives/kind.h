/* What is to be known of a datatype, and buffers of it.
 *
 * Operations that only move data take it as a stream of bytes: a buffer of a plain type is
 * that stream, others are packed. The stream of equal type signatures is equally long at all
 * ranks, since isthmus joins machines of one data representation. Reductions keep the type,
 * since the operation needs it. */
#ifndef ISTHMUS_KIND_H
#define ISTHMUS_KIND_H

#include "call.h"

struct kind {
    MPI_Datatype type;
    size_t size;                      /* bytes of one element's data */
    MPI_Aint lb, extent;              /* of the distance between elements */
    MPI_Aint true_lb, true_extent;    /* of the bytes that are touched */
    int plain;                        /* predefined and without gaps: the data are the buffer */
};

/* False for a null or invalid type, a negative count, or a null buffer of a plain type: then the MPI's own function
 * must speak. Of an element whose size MPI can't tell, `size` is the least that no int counts. */
int kind_of(struct kind *kind, const void *buffer, int count, MPI_Datatype type);

/* The same where there is no buffer to check. */
int kind_of_type(struct kind *kind, MPI_Datatype type);

/* Of bytes: every stream is a buffer of them. */
struct kind kind_of_bytes(void);

static inline char *element(const struct kind *kind, const void *buffer, long long index)
{
    return (char *)buffer + index * kind->extent;
}

/* Whether there is no buffer for so many elements. Other types may have absolute addresses. */
static inline int is_missing(const struct kind *kind, const void *buffer, int count)
{
    return kind->plain && count > 0 && buffer == NULL;
}

/* Elements of `count` in a segment, at least one. */
int segment_elements(const struct kind *kind, int count);

/* The stream of `count` elements: the buffer itself or a copy. */
char *stream_of(struct call *call, const struct kind *kind, const void *buffer, int count);

/* Where the stream for the buffer is put together: the buffer itself or memory. */
char *stream_room(struct call *call, const struct kind *kind, void *buffer, int count);

/* Copies `count` elements into a stream that is elsewhere, and back. */
void stream_write(struct call *call, const struct kind *kind, const void *buffer, int count, char *stream);
void stream_read(struct call *call, const struct kind *kind, const char *stream, void *buffer, int count);

/* Memory for elements; points at the first's origin, as a buffer of a user does. */
char *elements_memory(struct call *call, const struct kind *kind, long long count);

/* Copies elements; gaps of the destination stay. */
void elements_copy(struct call *call, const struct kind *kind, const void *from, void *to, int count);

/* The same from one type to another, as a message from this rank to itself would do it. */
void block_copy(struct call *call, const struct kind *kind, const void *from, int count, const struct kind *to_kind, void *to,
                int to_count);

#endif
