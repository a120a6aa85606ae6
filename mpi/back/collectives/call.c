#include "call.h"

#include <limits.h>
#include <stdlib.h>

#include "../cost.h"
#include "../counters.h"
#include "../real.h"
#include "asked.h"
#include "shape_of.h"

/* A message, or a part of one. */
struct started {
    MPI_Request request;
    int together;           /* how many from here on are one message */
    int from;               /* of a receive that begins once it is waited for; else -1 */
    int count, tag;         /* the same */
    void *buffer;
    MPI_Datatype type;
};

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
static int is_first(struct spread *spread)
{
    if (asked() != CHOICE_AUTO || spread->first_calls >= SPREAD_AFTER)
        return 0;
    spread->first_calls++;
    return 1;
}

static int take(struct call *call, enum algorithm algorithm, size_t bytes, int is_first)
{
    struct spread *spread = call->spread;
    if (is_first)
        algorithm = NATIVE;
    if (algorithm != NATIVE)
        call->code = spread_connect(spread, call->comm, &call->is_told);
    if (call_ok(call) && !spread->peers)
        algorithm = NATIVE;
    call->algorithm = algorithm;
    count_call(call->operation, algorithm, is_first);
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
    struct spread *spread = call->spread;
    if ((!spread->has_shape && shape_of_spread(spread) != 0) || (call->root >= 0 && shape_of_root(spread, call->root) != 0)) {
        call->code = MPI_ERR_NO_MEM;
        return 0;
    }
    return 1;
}

int call_takes(struct call *call, size_t bytes, size_t total, int commutative)
{
    if (!has_shape(call))
        return 1;
    /* MPI 3.1 counts in ints. */
    if (total > INT_MAX || (bytes == 0 && call->operation != OP_BARRIER))
        return take(call, NATIVE, bytes, 0);
    /* Any call that may be this library's shows that the communicator lives, whichever algorithm is the best. */
    enum algorithm algorithm = choose_asked(call->operation, &call->spread->shape, bytes, commutative, asked());
    return take(call, algorithm, bytes, is_first(call->spread));
}

int call_takes_uneven(struct call *call)
{
    if (!has_shape(call))
        return 1;
    /* How many bytes there are, no rank knows. */
    enum algorithm algorithm = choose_uneven(call->operation, &call->spread->shape, asked());
    return take(call, algorithm, 0, algorithm != NATIVE && is_first(call->spread));
}

void call_drop(struct call *call)
{
    for (int i = 0; i < call->memories; i++)
        free(call->memory[i]);
    free(call->memory);
    free(call->started);
}

int call_end(struct call *call)
{
    call_wait_all(call);
    int code = call->code, pending = 0;
    if (code != MPI_SUCCESS)
        call->spread->has_failed = 1;
    for (int i = 0; i < call->requests; i++)
        pending += call->started[i].request != MPI_REQUEST_NULL;
    /* Messages that an error has left under way may still write: their memory stays. */
    if (pending > 0)
        call->memories = 0;
    call_drop(call);
    return code == MPI_SUCCESS || call->is_told ? code : refuse_call(call->comm, code);
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

/* Receives within the site begin once they are waited for. So their errors go to the handler of
 * their communicator. MPICH 4 has those of what began before go to that of MPI_COMM_WORLD, and
 * ends programs that have asked for errors on their own communicators. */
#if defined MPICH_VERSION
enum { IS_LATE = 1 };
#else
enum { IS_LATE = 0 };
#endif

/* Places for a message of so many parts, or NULL. */
static struct started *new_requests(struct call *call, int count)
{
    if (!call_ok(call))
        return NULL;
    if (call->requests + count > call->requests_room) {
        int room = call->requests_room * 2 + 32 + count;
        struct started *more = realloc(call->started, (size_t)room * sizeof *more);
        if (more == NULL) {
            call->code = MPI_ERR_NO_MEM;
            return NULL;
        }
        call->started = more;
        call->requests_room = room;
    }
    struct started *started = &call->started[call->requests];
    for (int i = 0; i < count; i++)
        started[i] = (struct started){ .request = MPI_REQUEST_NULL, .from = -1 };
    started->together = count;
    call->requests += count;
    return started;
}

/* How a message is cut, so that the MPI needn't ask the receiver before it sends: beyond
 * EAGER_BYTES that takes a round trip, and several at once share what is left of the time badly.
 * Only messages of which both ends say the same elements. */
struct cut {
    int parts, elements;    /* of each part but the last */
    size_t bytes;           /* of an element */
    MPI_Aint extent;
};

static struct cut cut_of(struct call *call, int count, MPI_Datatype type, int with, int tag)
{
    int size = 0;
    MPI_Aint lb = 0;
    struct cut cut = { .parts = 1, .elements = count };
    real.Type_size(type, &size);
    cut.bytes = size > 0 ? (size_t)size : 0;
    size_t bytes = (size_t)count * cut.bytes;
    /* Direct messages have the types of the user, which may differ at the two ends. */
    int is_alike = tag == TAG_ACROSS || (tag != TAG_DIRECT && type == MPI_BYTE);
    int is_near = call->layout->site_of[with] == call->layout->site_of[call->layout->rank];
    if (!is_alike || is_near || bytes <= CUT_BYTES || bytes > CUT_MOST || cut.bytes > CUT_BYTES)
        return cut;
    CALL_DO(call, real.Type_get_extent(type, &lb, &cut.extent));
    cut.elements = (int)(CUT_BYTES / cut.bytes);
    cut.parts = (count - 1) / cut.elements + 1;
    return cut;
}

static int part_of(const struct cut *cut, int part, int count)
{
    return part < cut->parts - 1 ? cut->elements : count - part * cut->elements;
}

int call_send(struct call *call, const void *buffer, int count, MPI_Datatype type, int to, int tag)
{
    struct cut cut = cut_of(call, count, type, to, tag);
    struct started *started = new_requests(call, cut.parts);
    if (started == NULL)
        return -1;
    const struct spread *spread = call->spread;
    const struct peer *peer = &spread->peers[to];
    int own_tag = spread_tag(spread, peer->number, tag);
    for (int i = 0; i < cut.parts; i++) {
        const char *from = (const char *)buffer + (MPI_Aint)i * cut.elements * cut.extent;
        int part = part_of(&cut, i, count);
        count_message(call->spread, to, (size_t)part * cut.bytes);
        CALL_DO(call, real.Isend(from, part, type, peer->rank, own_tag, spread->wire->comm, &started[i].request));
    }
    return call->requests - cut.parts;
}

int call_receive(struct call *call, void *buffer, int count, MPI_Datatype type, int from, int tag)
{
    struct cut cut = cut_of(call, count, type, from, tag);
    struct started *started = new_requests(call, cut.parts);
    if (started == NULL)
        return -1;
    const struct spread *spread = call->spread;
    int own_tag = spread_tag(spread, spread->peers[call->layout->rank].number, tag);
    if (IS_LATE && tag == TAG_SITE) {
        started->from = spread->peers[from].rank;
        started->tag = own_tag;
        started->buffer = buffer;
        started->count = count;
        started->type = type;
        return call->requests - 1;
    }
    for (int i = 0; i < cut.parts; i++) {
        char *to = (char *)buffer + (MPI_Aint)i * cut.elements * cut.extent;
        CALL_DO(call, real.Irecv(to, part_of(&cut, i, count), type, spread->peers[from].rank, own_tag,
                                 spread->wire->comm, &started[i].request));
    }
    return call->requests - cut.parts;
}

int call_send_bytes(struct call *call, const void *bytes, size_t length, int to)
{
    return call_send(call, bytes, (int)length, MPI_BYTE, to, TAG_TREE);
}

int call_receive_bytes(struct call *call, void *bytes, size_t length, int from)
{
    return call_receive(call, bytes, (int)length, MPI_BYTE, from, TAG_TREE);
}

/* One by one: which errors they are MPI_Waitall says in statuses only, and MPICH 5 tells the error
 * handler of MPI_COMM_WORLD of them, as MPICH 4 does here, too. */
static void wait_for(struct call *call, int first, int count)
{
    int earlier = call->code;
    for (int i = first; i < first + count && earlier == MPI_SUCCESS; i++) {
        struct started *one = &call->started[i];
        int code = one->from >= 0 ? real.Recv(one->buffer, one->count, one->type, one->from, one->tag,
                                              call->spread->wire->comm, MPI_STATUS_IGNORE)
                                  : real.Wait(&one->request, MPI_STATUS_IGNORE);
        one->from = -1;
        if (call_ok(call))
            call->code = code;
    }
}

void call_wait(struct call *call, int number)
{
    if (number >= 0)
        wait_for(call, number, call->started[number].together);
}

void call_wait_since(struct call *call, int first)
{
    wait_for(call, first, call->requests - first);
}

void call_wait_all(struct call *call)
{
    call_wait_since(call, 0);
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
