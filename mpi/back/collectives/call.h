/* One call of a collective: what it works with, and what must be tidied after it.
 *
 * The first error sticks: after it, the functions below do nothing, so that an algorithm
 * reads straight on. It asks call_ok() only before it touches memory itself. */
#ifndef ISTHMUS_CALL_H
#define ISTHMUS_CALL_H

#include <mpi.h>
#include <stddef.h>

#include "../choice.h"
#include "../spread.h"

/* Of messages within one call: at most TAGS_OF_CALL. */
enum { TAG_TREE = 1, TAG_ACROSS, TAG_DOWN, TAG_DIRECT, TAG_SITE, TAG_HEARD };

struct call {
    MPI_Comm comm;
    enum operation operation;
    enum algorithm algorithm;
    struct spread *spread;
    const struct layout *layout;
    int code;                /* MPI_SUCCESS, or the first error */
    int is_told;             /* the communicator's error handler knows of the error */
    int root;                /* set before call_takes() where there is one; else -1 */
    struct started *started; /* [requests] by this call */
    int requests, requests_room;
    void **memory;           /* [memories] to be freed with the call */
    int memories, memories_room;
};

/* False if the call is the MPI's own affair: one site, or unknown places. */
int call_begin(struct call *call, enum operation operation, MPI_Comm comm);

/* Whether this library carries it out; if so, messages can go to all ranks or `code` says
 * why not. `bytes` as for choose(); `total`: the most bytes that one rank holds at a time. */
int call_takes(struct call *call, size_t bytes, size_t total, int commutative);

/* The same where each rank knows its own sizes only. */
int call_takes_uneven(struct call *call);

/* Waits for what is under way, frees, and hands an error to the communicator's handler.
 * Returns what the collective returns. */
int call_end(struct call *call);

/* Frees what a call has that this library doesn't carry out after all. */
void call_drop(struct call *call);

static inline int call_ok(const struct call *call)
{
    return call->code == MPI_SUCCESS;
}

/* Runs one of the MPI's functions unless an error has come before. */
#define CALL_DO(call, expression) \
    do { \
        if ((call)->code == MPI_SUCCESS) \
            (call)->code = (expression); \
    } while (0)

/* Memory until the call's end; never NULL unless `code` is set. */
void *call_memory(struct call *call, size_t bytes);
int *call_ints(struct call *call, int count);

/* Start a message and return the number by which it is waited for, or -1 after an error. With
 * TAG_ACROSS, or as MPI_BYTE but for TAG_DIRECT, both ends say as many elements of types of one size. */
int call_send(struct call *call, const void *buffer, int count, MPI_Datatype type, int to, int tag);
int call_receive(struct call *call, void *buffer, int count, MPI_Datatype type, int from, int tag);

/* Messages of bytes, between ranks of a tree. */
int call_send_bytes(struct call *call, const void *bytes, size_t length, int to);
int call_receive_bytes(struct call *call, void *bytes, size_t length, int from);

/* Waits for one; -1 is nothing to wait for. */
void call_wait(struct call *call, int number);

/* Waits for all that was started, or for what was since there were so many requests. */
void call_wait_all(struct call *call);
void call_wait_since(struct call *call, int first);

/* To whom of `count` one sends next, the number-th time: to the one after itself first, and to itself last. If all began
 * with the same one, its link would carry all messages at once, and then none. */
static inline int in_turn(int own, int number, int count)
{
    return (own + 1 + number) % count;
}

/* Whether arguments are such that the MPI's own function must speak. */
static inline int bad_root(const struct call *call, int root)
{
    return root < 0 || root >= call->layout->size;
}

/* The index of a rank among those of the calling rank's site, or -1. */
int site_index(const struct layout *layout, int rank);

#endif
