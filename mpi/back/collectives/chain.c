#include "chain.h"

#include "../real.h"

/* The calling rank's place. */
struct chain {
    int member;      /* whether it stands for its site */
    int head;        /* index in the site's communicator of the one who does */
    int up, down;    /* the ranks next to it, towards the root and away from it, or -1 */
};

/* Who stands for the site so far from the root's: the root, or the lowest rank. */
static int stands_at(const struct call *call, const struct lanes *sites, int root, int distance)
{
    const struct layout *layout = call->layout;
    int site = (layout->site_of[root] + distance) % layout->sites;
    return distance == 0 ? root : sites->ranks[sites->start[site]];
}

static void chain_make(struct call *call, struct chain *chain, int root)
{
    const struct layout *layout = call->layout;
    struct lanes sites;
    lanes_make(call, &sites, 1);
    *chain = (struct chain){ .up = -1, .down = -1 };
    if (!call_ok(call))
        return;
    int distance = (layout->site_of[layout->rank] - layout->site_of[root] + layout->sites) % layout->sites;
    int own = stands_at(call, &sites, root, distance);
    chain->member = own == layout->rank;
    chain->head = site_index(layout, own);
    if (chain->member && distance > 0)
        chain->up = stands_at(call, &sites, root, distance - 1);
    if (chain->member && distance + 1 < layout->sites)
        chain->down = stands_at(call, &sites, root, distance + 1);
}

/* Whether a part for the site ends with a piece. A site gets the whole in few parts, since each is
 * something that all of its ranks wait for. */
static int ends_part(int p, int pieces)
{
    int of_part = (pieces + CHAIN_PARTS - 1) / CHAIN_PARTS;
    return (p + 1) % of_part == 0 || p + 1 == pieces;
}

void chain_bcast(struct call *call, char *stream, size_t length, int root)
{
    struct chain chain;
    size_t piece = segment_bytes(length), spread = 0;
    int pieces = (int)((length + piece - 1) / piece);
    int *arrived = call_ints(call, pieces);
    chain_make(call, &chain, root);
    for (int p = 0; p < pieces && call_ok(call); p++) {
        size_t start = (size_t)p * piece, bytes = length - start < piece ? length - start : piece;
        arrived[p] = chain.up < 0 ? -1 : call_receive_bytes(call, stream + start, bytes, chain.up);
    }
    for (int p = 0; p < pieces && call_ok(call); p++) {
        size_t start = (size_t)p * piece, bytes = length - start < piece ? length - start : piece;
        call_wait(call, arrived[p]);
        if (chain.down >= 0)
            call_send_bytes(call, stream + start, bytes, chain.down);
        if (!ends_part(p, pieces))
            continue;
        CALL_DO(call, real.Bcast(stream + spread, (int)(start + bytes - spread), MPI_BYTE, chain.head,
                                 call->spread->site));
        spread = start + bytes;
    }
}

/* A reduction that is under way. */
struct work {
    const struct reduction *reduction;
    struct chain chain;
    int count, piece, pieces;   /* elements, of a piece, and how many of them */
    char *own, *other;          /* the sum so far, and what comes from further down */
    int *from_down;             /* [pieces] */
};

static void work_make(struct call *call, struct work *work, const struct reduction *reduction, int count, int root)
{
    const struct kind *kind = &reduction->kind;
    *work = (struct work){ .reduction = reduction, .count = count, .piece = segment_elements(kind, count) };
    work->pieces = (count - 1) / work->piece + 1;
    work->from_down = call_ints(call, work->pieces);
    chain_make(call, &work->chain, root);
    if (call_ok(call) && work->chain.member)
        work->own = elements_memory(call, kind, count);
    if (call_ok(call) && work->chain.down >= 0)
        work->other = elements_memory(call, kind, count);
}

static int length_of(const struct work *work, int p)
{
    int start = p * work->piece;
    return work->count - start < work->piece ? work->count - start : work->piece;
}

static char *piece_in(const struct work *work, const void *buffer, int p)
{
    return element(&work->reduction->kind, buffer, (long long)p * work->piece);
}

/* Pieces cross as messages of which both ends say the same elements, so that they may be cut. */
static int receive_piece(struct call *call, const struct work *work, void *buffer, int p, int from)
{
    return call_receive(call, piece_in(work, buffer, p), length_of(work, p), work->reduction->kind.type, from, TAG_ACROSS);
}

static void send_piece(struct call *call, const struct work *work, const void *buffer, int p, int to)
{
    call_send(call, piece_in(work, buffer, p), length_of(work, p), work->reduction->kind.type, to, TAG_ACROSS);
}

static void expect(struct call *call, struct work *work)
{
    for (int p = 0; p < work->pieces && call_ok(call) && work->chain.down >= 0; p++)
        work->from_down[p] = receive_piece(call, work, work->other, p, work->chain.down);
}

/* Elements of the pieces from the first to the last. */
static int lengths_of(const struct work *work, int first, int last)
{
    return (last - first) * work->piece + length_of(work, last);
}

/* The part for the site that begins with a piece: returns its last one. */
static int part_from(const struct work *work, int p)
{
    while (!ends_part(p, work->pieces))
        p++;
    return p;
}

static void reduce_in_site(struct call *call, const struct work *work, const void *send, int first, int last)
{
    char *to = work->chain.member ? piece_in(work, work->own, first) : NULL;
    CALL_DO(call, real.Reduce(piece_in(work, send, first), to, lengths_of(work, first, last),
                              work->reduction->kind.type, work->reduction->op, work->chain.head, call->spread->site));
}

/* Adds what comes from further down, and passes the sum on upwards or, at the root, leaves it in
 * `result`. */
static void pass_up(struct call *call, const struct work *work, int p, void *result)
{
    const struct reduction *reduction = work->reduction;
    char *own = piece_in(work, work->own, p);
    if (work->chain.down >= 0) {
        call_wait(call, work->from_down[p]);
        CALL_DO(call, real.Reduce_local(piece_in(work, work->other, p), own, length_of(work, p), reduction->kind.type,
                                        reduction->op));
    }
    if (work->chain.up >= 0)
        send_piece(call, work, work->own, p, work->chain.up);
    else
        elements_copy(call, &reduction->kind, own, piece_in(work, result, p), length_of(work, p));
}

void chain_reduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count,
                  int root)
{
    struct work work;
    work_make(call, &work, reduction, count, root);
    if (call_ok(call))
        expect(call, &work);
    /* The root has nobody to pass a piece on to, so that its site needn't wait for others. */
    int at_once = work.chain.up >= 0;
    for (int p = 0, last; p < work.pieces && call_ok(call); p = last + 1) {
        last = part_from(&work, p);
        reduce_in_site(call, &work, send, p, last);
        for (int i = p; i <= last && call_ok(call) && at_once; i++)
            pass_up(call, &work, i, recv);
    }
    for (int p = 0; p < work.pieces && call_ok(call) && work.chain.member && !at_once; p++)
        pass_up(call, &work, p, recv);
}

void chain_allreduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count)
{
    struct work work;
    int root = 0, passed = 0;
    work_make(call, &work, reduction, count, root);
    int *from_up = call_ints(call, work.pieces), up = work.chain.up, down = work.chain.down;
    if (call_ok(call))
        expect(call, &work);
    for (int p = 0, last = -1; p < work.pieces && call_ok(call); p++) {
        if (p > last) {
            last = part_from(&work, p);
            reduce_in_site(call, &work, send, p, last);
        }
        /* Where a piece of the result comes has been read: in place it is the input. */
        from_up[p] = up >= 0 ? receive_piece(call, &work, recv, p, up) : -1;
        if (work.chain.member && call_ok(call))
            pass_up(call, &work, p, recv);
        for (; down >= 0 && passed <= p && call_arrived(call, from_up[passed]); passed++)
            send_piece(call, &work, recv, passed, down);
    }
    for (int p = 0, first = 0; p < work.pieces && call_ok(call); p++) {
        call_wait(call, from_up[p]);
        if (down >= 0 && passed <= p)
            send_piece(call, &work, recv, passed++, down);
        if (!ends_part(p, work.pieces))
            continue;
        CALL_DO(call, real.Bcast(piece_in(&work, recv, first), lengths_of(&work, first, p), reduction->kind.type,
                                 work.chain.head, call->spread->site));
        first = p + 1;
    }
}
