/* RELAYED: the root sends each other site a share of the message, and each passes its share on to all others as it
 * comes. A site's link carries each byte once in and once out, however many sites there are, and each byte crosses
 * twice at most. MPI_Reduce is the same backwards: each site but the root's combines what all of them have for its
 * share, and sends the root the sum.
 *
 * One rank of each site hands on. Blocks of the message follow one another. A block has a piece for each site. Only
 * some blocks are under way at a time: see window.h.
 *
 * Source: the scatter and the allgather of M. Barnett et al., "Interprocessor Collective Communication Library",
 * SHPCC 1994, section 5, the one along with the other, between sites. */
#include "carried.h"

#include "pace.h"
#include "site.h"

struct relay {
    int others;         /* sites without the root's */
    int *ranks;         /* [others] who stand for them, from the one after the root's on */
    int mine;           /* which is the calling rank's site, or -1 at the root's */
    int is_member;      /* the calling rank stands for its site */
    int head;           /* index in the site of the one who does */
    int count;          /* elements */
    int blocks, piece;  /* elements of a piece, but for the last ones */
    int parts;          /* in which the message spreads within the calling rank's site */
    struct pace pace;
    int untold;         /* the last blocks, of which the root hears nothing */
};

static void relay_make(struct call *call, struct relay *relay, int count, size_t element_bytes, int root)
{
    const struct layout *layout = call->layout;
    int others = layout->sites - 1, root_site = layout->site_of[root], own = layout->site_of[layout->rank];
    *relay = (struct relay){
        .others = others,
        .ranks = call_ints(call, others),
        .mine = own == root_site ? -1 : (own - root_site - 1 + layout->sites) % layout->sites,
        .count = count,
        .blocks = relayed_blocks((size_t)count * element_bytes, layout->sites),
    };
    for (int i = 0; i < others && call_ok(call); i++)
        relay->ranks[i] = layout->tier[0].leaders[(root_site + 1 + i) % layout->sites];
    if (!call_ok(call))
        return;
    relay->piece = (int)(((long long)count - 1) / ((long long)relay->blocks * others) + 1);
    /* The root's site has the whole at once. */
    relay->parts = relay->mine < 0 ? 1 : relay->blocks < RELAYED_PARTS ? relay->blocks : RELAYED_PARTS;
    /* Parts cross at the same time, and what has come is heard of after a round trip. */
    pace_make(call, &relay->pace,
              window_make(&call->spread->shape, relay->blocks, (double)count * (double)element_bytes / relay->blocks,
                          call->operation == OP_BCAST ? 1 : 0.5));
    relay->untold = relay->pace.window.ahead;
    int head = relay->mine < 0 ? root : relay->ranks[relay->mine];
    relay->is_member = head == layout->rank;
    relay->head = site_index(layout, head);
}

static int start_of(const struct relay *relay, int block, int site)
{
    long long start = ((long long)block * relay->others + site) * relay->piece;
    return start < relay->count ? (int)start : relay->count;
}

static int count_of(const struct relay *relay, int block, int site)
{
    int start = start_of(relay, block, site);
    return relay->count - start < relay->piece ? relay->count - start : relay->piece;
}

/* The first block of a part. */
static int part_of(const struct relay *relay, int part)
{
    return (int)((long long)relay->blocks * part / relay->parts);
}

static void send_piece(struct call *call, const struct relay *relay, const char *stream, int block, int site, int to)
{
    int count = count_of(relay, block, site);
    if (count > 0)
        call_send_bytes(call, stream + start_of(relay, block, site), (size_t)count, relay->ranks[to]);
}

/* arrived[block * others + site] */
static int *expect(struct call *call, const struct relay *relay, char *stream, int root)
{
    int *arrived = call_ints(call, relay->blocks * relay->others), *next = arrived;
    for (int b = 0; b < relay->blocks; b++) {
        for (int i = 0; i < relay->others && call_ok(call); i++, next++) {
            int count = count_of(relay, b, i), from = i == relay->mine ? root : relay->ranks[i];
            *next = count > 0 ? call_receive_bytes(call, stream + start_of(relay, b, i), (size_t)count, from) : -1;
        }
    }
    return arrived;
}

/* Whether the root waits until the site has the block. */
static int is_told(const struct relay *relay, int block, int site)
{
    return block + relay->untold < relay->blocks && count_of(relay, block, site) > 0;
}

static void pass_on(struct call *call, const struct relay *relay, const char *stream, const int *arrived, int root)
{
    for (int b = 0; b < relay->blocks && call_ok(call); b++) {
        call_wait(call, arrived[b * relay->others + relay->mine]);
        if (is_told(relay, b, relay->mine))
            call_send(call, NULL, 0, MPI_BYTE, root, TAG_DOWN);
        for (int i = 0; i + 1 < relay->others; i++)
            send_piece(call, relay, stream, b, relay->mine, in_turn(relay->mine, i, relay->others));
    }
}

/* Begins to receive what relays say when they have a block. told[block * others + site] is its number. */
static int *expect_told(struct call *call, const struct relay *relay)
{
    int *told = call_ints(call, relay->blocks * relay->others), *next = told;
    for (int b = 0; b < relay->blocks; b++)
        for (int i = 0; i < relay->others && call_ok(call); i++)
            *next++ = is_told(relay, b, i) ? call_receive(call, NULL, 0, MPI_BYTE, relay->ranks[i], TAG_DOWN) : -1;
    return told;
}

/* Waits for the next block's messages, by their numbers. */
static void hear(struct call *call, struct relay *relay, const int *numbers)
{
    for (int i = 0; i < relay->others; i++)
        call_wait(call, numbers[relay->pace.heard * relay->others + i]);
    pace_hear(&relay->pace);
}

/* The root sends so many blocks in all, and has only some under way. */
static void send_shares(struct call *call, struct relay *relay, const char *stream, const int *told, int blocks)
{
    while (relay->pace.sent < blocks && call_ok(call)) {
        while (!pace_may_send(&relay->pace) && call_ok(call))
            hear(call, relay, told);
        int b = pace_send(&relay->pace);
        for (int i = 0; i < relay->others; i++)
            send_piece(call, relay, stream, b, i, i);
    }
}

void relayed_bcast(struct call *call, char *stream, int length, int root)
{
    struct relay relay;
    struct kind bytes = kind_of_bytes();
    int *arrived = NULL, *told = NULL;
    relay_make(call, &relay, length, 1, root);
    if (!call_ok(call))
        return;
    int is_root = relay.is_member && relay.mine < 0, at_once = relay.untold;
    if (relay.is_member && relay.mine >= 0) {
        arrived = expect(call, &relay, stream, root);
        pass_on(call, &relay, stream, arrived, root);
    }
    if (is_root) {
        told = expect_told(call, &relay);
        send_shares(call, &relay, stream, told, at_once);
    }
    for (int p = 0; p < relay.parts && call_ok(call); p++) {
        int start = start_of(&relay, part_of(&relay, p), 0), end = start_of(&relay, part_of(&relay, p + 1), 0);
        for (int b = part_of(&relay, p); b < part_of(&relay, p + 1) && arrived != NULL; b++)
            for (int i = 0; i < relay.others; i++)
                call_wait(call, arrived[b * relay.others + i]);
        if (call_ok(call) && end > start)
            site_bcast(call, &bytes, stream + start, end - start, relay.head);
    }
    /* Its site has the message meanwhile. */
    if (is_root)
        send_shares(call, &relay, stream, told, relay.blocks);
}

/* Room for the sums of all shares. arrived[block * others + site] as above. */
static char *receive_sums(struct call *call, const struct reduction *reduction, const struct relay *relay, int *arrived)
{
    char *sums = elements_memory(call, &reduction->kind, relay->count);
    for (int b = 0; b < relay->blocks; b++) {
        for (int i = 0; i < relay->others && call_ok(call); i++, arrived++) {
            char *to = element(&reduction->kind, sums, start_of(relay, b, i));
            int count = count_of(relay, b, i);
            *arrived = count > 0 ? call_receive(call, to, count, reduction->kind.type, relay->ranks[i], TAG_ACROSS) : -1;
        }
    }
    return sums;
}

/* Combines the root's part with the sum of all others, in this order. */
static void finish(struct call *call, const struct reduction *reduction, const struct relay *relay, const int *arrived,
                   char *own, char *sums, void *recv)
{
    const struct kind *kind = &reduction->kind;
    for (int b = 0; b < relay->blocks; b++) {
        for (int i = 0; i < relay->others && call_ok(call); i++, arrived++) {
            int start = start_of(relay, b, i), count = count_of(relay, b, i);
            char *part[] = { element(kind, own, start), element(kind, sums, start) };
            if (count > 0)
                elements_copy(call, kind, fold(call, reduction, part, (int[]){ -1, *arrived }, 2, count),
                              element(kind, recv, start), count);
        }
    }
}

/* Room for what each other site has for the own share, of which arrived[block * others + site] are the pieces. */
static char **receive_parts(struct call *call, const struct reduction *reduction, const struct relay *relay, int *arrived)
{
    const struct kind *kind = &reduction->kind;
    char **from = call_memory(call, (size_t)relay->others * sizeof *from);
    for (int i = 0; i < relay->others && call_ok(call); i++)
        from[i] = i == relay->mine ? NULL : elements_memory(call, kind, (long long)relay->blocks * relay->piece);
    for (int b = 0; b < relay->blocks; b++) {
        for (int i = 0; i < relay->others && call_ok(call); i++, arrived++) {
            int count = i == relay->mine ? 0 : count_of(relay, b, relay->mine);
            *arrived = count > 0 ? call_receive(call, element(kind, from[i], (long long)b * relay->piece), count,
                                                kind->type, relay->ranks[i], TAG_ACROSS)
                                 : -1;
        }
    }
    return from;
}

static void send_parts(struct call *call, const struct reduction *reduction, const struct relay *relay, const char *own,
                       int block)
{
    for (int i = 0; i + 1 < relay->others; i++) {
        int to = in_turn(relay->mine, i, relay->others), count = count_of(relay, block, to);
        if (count > 0)
            call_send(call, element(&reduction->kind, own, start_of(relay, block, to)), count, reduction->kind.type,
                      relay->ranks[to], TAG_ACROSS);
    }
}

/* What a relay adds up: its own part and those of the other sites. */
struct sums {
    char *own, **from, **part;
    const int *arrived;
    int root;
};

/* Combines the own share of the next block, in the order of sites. */
static void send_sum(struct call *call, const struct reduction *reduction, struct relay *relay, struct sums *sums)
{
    const struct kind *kind = &reduction->kind;
    int b = relay->pace.heard, count = count_of(relay, b, relay->mine);
    hear(call, relay, sums->arrived);
    if (count > 0 && call_ok(call)) {
        for (int i = 0; i < relay->others; i++)
            sums->part[i] = i == relay->mine ? element(kind, sums->own, start_of(relay, b, i))
                                             : element(kind, sums->from[i], (long long)b * relay->piece);
        char *sum = fold(call, reduction, sums->part, sums->arrived + b * relay->others, relay->others, count);
        call_send(call, sum, count, kind->type, sums->root, TAG_ACROSS);
    }
}

/* Parts go out some blocks before the sums. A relay's link carries both: parts that are sent too early keep sums back,
 * and meanwhile the root's link is idle. */
static void exchange_blocks(struct call *call, const struct reduction *reduction, struct relay *relay, struct sums *sums,
                            int blocks)
{
    while (relay->pace.sent < blocks && call_ok(call)) {
        while (!pace_may_send(&relay->pace) && call_ok(call))
            send_sum(call, reduction, relay, sums);
        send_parts(call, reduction, relay, sums->own, pace_send(&relay->pace));
    }
}

void relayed_reduce(struct call *call, const struct reduction *reduction, const void *send, void *recv, int count,
                    int root)
{
    struct relay relay;
    const struct kind *kind = &reduction->kind;
    relay_make(call, &relay, count, kind->size, root);
    if (!call_ok(call))
        return;
    int relays = relay.is_member && relay.mine >= 0, is_root = relay.is_member && !relays;
    char *own = relay.is_member ? elements_memory(call, kind, count) : NULL;
    int *arrived = relay.is_member ? call_ints(call, relay.blocks * relay.others) : NULL;
    char *whole = is_root ? receive_sums(call, reduction, &relay, arrived) : NULL;
    struct sums sums = { .own = own, .arrived = arrived, .root = root };
    if (relays) {
        sums.from = receive_parts(call, reduction, &relay, arrived);
        sums.part = call_memory(call, (size_t)relay.others * sizeof *sums.part);
    }
    for (int p = 0; p < relay.parts && call_ok(call); p++) {
        int first = part_of(&relay, p), end = part_of(&relay, p + 1);
        int start = start_of(&relay, first, 0), stop = start_of(&relay, end, 0);
        if (stop > start)
            site_reduce(call, reduction, element(kind, send, start), relay.is_member ? element(kind, own, start) : NULL,
                        stop - start, relay.head);
        if (relays)
            exchange_blocks(call, reduction, &relay, &sums, end);
    }
    if (is_root)
        finish(call, reduction, &relay, arrived, own, whole, recv);
    if (relays)
        while (relay.pace.heard < relay.blocks && call_ok(call))
            send_sum(call, reduction, &relay, &sums);
}
