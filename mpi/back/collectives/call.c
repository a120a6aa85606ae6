#include "call.h"

#include <limits.h>
#include <stdlib.h>

#include "../counters.h"
#include "../real.h"
#include "asked.h"
#include "shape_of.h"

int call_begin(struct call *call, enum operation operation, MPI_Comm comm)
{
    struct spread *spread = spread_of(comm);
    if (spread == NULL)
        return 0;
    *call = (struct call){
        .comm = comm,
        .operation = operation,
        .spread = spread,
        .layout = &spread->layout,
        .code = MPI_SUCCESS,
        .root = -1,
    };
    return 1;
}

/* Whether the communicator is to show first that it lives for more than a few calls. */
static int is_awaited(struct spread *spread)
{
    if (asked() != CHOICE_AUTO || spread->awaited >= SPREAD_AFTER)
        return 0;
    spread->awaited++;
    return 1;
}

static int take(struct call *call, enum algorithm algorithm, size_t bytes)
{
    if ((algorithm == LANES || algorithm == SCATTERED) && call->no_lanes)
        algorithm = asked() == CHOICE_AUTO ? NATIVE : LEADERS;
    struct spread *spread = call->spread;
    if (algorithm != NATIVE && is_awaited(spread))
        algorithm = NATIVE;
    if (algorithm != NATIVE)
        call->code = spread_connect(spread, call->comm);
    if (spread->is_native)
        algorithm = NATIVE;
    call->algorithm = algorithm;
    count_call(call->operation, algorithm);
    if (algorithm == NATIVE && call_ok(call))
        return 0;
    if (call->layout->rank == 0)
        count_least(least_crossing(call->operation, &spread->shape, bytes));
    spread->sequence++;
    return 1;
}

/* Without memory for the shape this rank can't know what the others do: an error. */
static int has_shape(struct call *call)
{
    if (!call->spread->has_shape && shape_of_spread(call->spread) != 0) {
        call->code = MPI_ERR_NO_MEM;
        return 0;
    }
    if (call->root >= 0)
        shape_root(&call->spread->shape, call->layout->site_of, call->root);
    return 1;
}

int call_takes(struct call *call, size_t bytes, size_t total, int commutative)
{
    if (!has_shape(call))
        return 1;
    /* MPI 3.1 counts in ints. */
    int fits = total <= INT_MAX && (bytes > 0 || call->operation == OP_BARRIER);
    return take(call, fits ? choose_asked(call->operation, &call->spread->shape, bytes, commutative, asked()) : NATIVE,
                bytes);
}

int call_takes_uneven(struct call *call)
{
    if (!has_shape(call))
        return 1;
    /* How many bytes there are, no rank knows. */
    return take(call, choose_uneven(call->operation, &call->spread->shape, asked()), 0);
}

void call_drop(struct call *call)
{
    for (int i = 0; i < call->memories; i++)
        free(call->memory[i]);
    free(call->memory);
    free(call->request);
}

int call_end(struct call *call)
{
    call_wait_all(call);
    int code = call->code, pending = 0;
    for (int i = 0; i < call->requests; i++)
        pending += call->request[i] != MPI_REQUEST_NULL;
    /* Messages that an error has left under way may still write: their memory stays. */
    if (pending > 0)
        call->memories = 0;
    call_drop(call);
    return code == MPI_SUCCESS ? code : refuse_call(call->comm, code);
}

void *call_memory(struct call *call, size_t bytes)
{
    if (!call_ok(call))
        return NULL;
    if (call->memories == call->memories_room) {
        int room = call->memories_room * 2 + 16;
        void **more = realloc(call->memory, (size_t)room * sizeof *more);
        if (more == NULL) {
            call->code = MPI_ERR_NO_MEM;
            return NULL;
        }
        call->memory = more;
        call->memories_room = room;
    }
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        call->code = MPI_ERR_NO_MEM;
        return NULL;
    }
    call->memory[call->memories++] = memory;
    return memory;
}

int *call_ints(struct call *call, int count)
{
    return call_memory(call, (size_t)count * sizeof(int));
}

/* A place for one more request, or NULL. */
static MPI_Request *new_request(struct call *call)
{
    if (!call_ok(call))
        return NULL;
    if (call->requests == call->requests_room) {
        int room = call->requests_room * 2 + 32;
        MPI_Request *more = realloc(call->request, (size_t)room * sizeof *more);
        if (more == NULL) {
            call->code = MPI_ERR_NO_MEM;
            return NULL;
        }
        call->request = more;
        call->requests_room = room;
    }
    MPI_Request *request = &call->request[call->requests++];
    *request = MPI_REQUEST_NULL;
    return request;
}

/* The tag of this call: messages that an error has left under way never match those of the next
 * calls. Below 32,768, which every MPI has (MPI-4.1, 9.1.2). */
static int own_tag(const struct call *call, int tag)
{
    return tag + (int)(call->spread->sequence % 4000) * TAGS;
}

int call_send(struct call *call, const void *buffer, int count, MPI_Datatype type, int to, int tag)
{
    MPI_Request *request = new_request(call);
    if (request == NULL)
        return -1;
    int size = 0;
    real.Type_size(type, &size);
    count_message(call->spread, to, (size_t)count * (size_t)(size > 0 ? size : 0));
    CALL_DO(call, real.Isend(buffer, count, type, to, own_tag(call, tag), call->spread->wire, request));
    return call->requests - 1;
}

int call_receive(struct call *call, void *buffer, int count, MPI_Datatype type, int from, int tag)
{
    MPI_Request *request = new_request(call);
    if (request == NULL)
        return -1;
    CALL_DO(call, real.Irecv(buffer, count, type, from, own_tag(call, tag), call->spread->wire, request));
    return call->requests - 1;
}

void call_to_self(struct call *call, const void *from, int count, MPI_Datatype type, void *to, int to_count,
                  MPI_Datatype to_type)
{
    int self = call->layout->rank;
    CALL_DO(call, real.Sendrecv(from, count, type, self, TAG_SELF, to, to_count, to_type, self, TAG_SELF,
                                call->spread->wire, MPI_STATUS_IGNORE));
}

int call_send_bytes(struct call *call, const void *bytes, size_t length, int to)
{
    return call_send(call, bytes, (int)length, MPI_BYTE, to, TAG_TREE);
}

int call_receive_bytes(struct call *call, void *bytes, size_t length, int from)
{
    return call_receive(call, bytes, (int)length, MPI_BYTE, from, TAG_TREE);
}

/* MPICH's header declares an array of statuses and then gives 1 as its address, to be
 * ignored, in which gcc sees an overflow. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-overflow"

static void wait_for(struct call *call, MPI_Request *first, int count)
{
    if (count > 0)
        CALL_DO(call, real.Waitall(count, first, MPI_STATUSES_IGNORE));
}

#pragma GCC diagnostic pop

void call_wait(struct call *call, int number)
{
    if (number >= 0)
        wait_for(call, &call->request[number], 1);
}

void call_wait_all(struct call *call)
{
    wait_for(call, call->request, call->requests);
}

int site_index(const struct layout *layout, int rank)
{
    int low = 0, high = layout->site_members - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        if (layout->site_ranks[middle] == rank)
            return middle;
        if (layout->site_ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}
