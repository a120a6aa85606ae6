#include "exchange.h"

#include <string.h>

#include "blocks.h"
#include "site.h"

/* What a leader knows of its site: for member i, sends[i * size + r] are the bytes for rank r
 * of the communicator, and receives[...] those from it. */
struct traffic {
    int size, members;
    int *sends, *receives;
};

static size_t sum(const int *lengths, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += (size_t)lengths[i];
    return total;
}

/* Where the block of each member and rank begins in what the members have, one after the
 * other. */
static size_t *starts_of(struct call *call, const struct traffic *traffic, const int *lengths)
{
    size_t *start = call_memory(call, (size_t)traffic->members * (size_t)traffic->size * sizeof *start), at = 0;
    for (size_t i = 0; start != NULL && i < (size_t)traffic->members * (size_t)traffic->size; i++) {
        start[i] = at;
        at += (size_t)lengths[i];
    }
    return start;
}

/* The order within a message between sites: by sender, then by receiver. Returns its bytes. */
static size_t pack_for(const struct traffic *traffic, const struct lanes *sites, int site, const char *rows,
                       const size_t *start, char *message)
{
    char *to = message;
    for (int i = 0; i < traffic->members; i++) {
        for (int j = sites->start[site]; j < sites->start[site + 1]; j++) {
            size_t at = (size_t)i * (size_t)traffic->size + (size_t)sites->ranks[j];
            memcpy(to, rows + start[at], (size_t)traffic->sends[at]);
            to += traffic->sends[at];
        }
    }
    return (size_t)(to - message);
}

static void unpack_from(const struct traffic *traffic, const struct lanes *sites, int site, char *rows,
                        const size_t *start, const char *message)
{
    for (int j = sites->start[site]; j < sites->start[site + 1]; j++) {
        for (int i = 0; i < traffic->members; i++) {
            size_t at = (size_t)i * (size_t)traffic->size + (size_t)sites->ranks[j];
            memcpy(rows + start[at], message, (size_t)traffic->receives[at]);
            message += traffic->receives[at];
        }
    }
}

static size_t bytes_from(const struct traffic *traffic, const struct lanes *sites, int site)
{
    size_t total = 0;
    for (int j = sites->start[site]; j < sites->start[site + 1]; j++)
        for (int i = 0; i < traffic->members; i++)
            total += (size_t)traffic->receives[(size_t)i * (size_t)traffic->size + (size_t)sites->ranks[j]];
    return total;
}

/* The leader's part: `rows` has what the site's ranks send; returns what they get. */
static char *swap(struct call *call, const struct traffic *traffic, const char *rows)
{
    const struct layout *layout = call->layout;
    struct lanes sites;
    lanes_make(call, &sites, 1);
    size_t blocks = (size_t)traffic->members * (size_t)traffic->size;
    size_t *out_start = starts_of(call, traffic, traffic->sends), *in_start = starts_of(call, traffic, traffic->receives);
    char *out = call_memory(call, sum(traffic->sends, (int)blocks));
    char *in = call_memory(call, sum(traffic->receives, (int)blocks));
    char **message = call_memory(call, (size_t)layout->sites * sizeof *message);
    int *arrived = call_ints(call, layout->sites), own = layout->site_of[layout->rank];
    for (int s = 0; s < layout->sites && call_ok(call); s++) {
        size_t bytes = bytes_from(traffic, &sites, s);
        message[s] = call_memory(call, bytes);
        arrived[s] = s == own ? -1 : call_receive(call, message[s], (int)bytes, MPI_BYTE, sites.ranks[sites.start[s]], TAG_ACROSS);
    }
    for (int i = 0; i < layout->sites && call_ok(call); i++) {
        int s = in_turn(own, i, layout->sites);
        char *to = s == own ? message[s] : out;
        size_t bytes = pack_for(traffic, &sites, s, rows, out_start, to);
        if (s == own)
            continue;
        call_send(call, out, (int)bytes, MPI_BYTE, sites.ranks[sites.start[s]], TAG_ACROSS);
        out += bytes;
    }
    for (int s = 0; s < layout->sites && call_ok(call); s++) {
        call_wait(call, arrived[s]);
        if (call_ok(call))
            unpack_from(traffic, &sites, s, in, in_start, message[s]);
    }
    return in;
}

void exchange(struct call *call, const int *sends, const int *receives, const char *out, char *in)
{
    const struct layout *layout = call->layout;
    int size = layout->size, members = layout->site_members, is_leader = layout->site_ranks[0] == layout->rank;
    struct traffic traffic = { .size = size, .members = members };
    /* What each member has in all, by its rank in the communicator. */
    int *length_out = call_ints(call, size), *length_in = call_ints(call, size);
    if (is_leader) {
        traffic.sends = call_ints(call, members * size);
        traffic.receives = call_ints(call, members * size);
    }
    site_gather_ints(call, sends, size, traffic.sends, 0);
    site_gather_ints(call, receives, size, traffic.receives, 0);
    if (!call_ok(call))
        return;
    length_out[layout->rank] = (int)sum(sends, size);
    length_in[layout->rank] = (int)sum(receives, size);
    for (int i = 0; i < members && is_leader; i++) {
        length_out[layout->site_ranks[i]] = (int)sum(&traffic.sends[i * size], size);
        length_in[layout->site_ranks[i]] = (int)sum(&traffic.receives[i * size], size);
    }
    char *rows = site_up(call, length_out, out, 0);
    if (is_leader && call_ok(call))
        rows = swap(call, &traffic, rows);
    if (call_ok(call))
        site_down(call, length_in, rows, in, 0);
}
