/* What messages cost; shared by both halves of the cost model, cost_own.c and cost_native.c. All in seconds. */
#ifndef ISTHMUS_COST_H
#define ISTHMUS_COST_H

#include "choice.h"

/* Beyond this many bytes, MPIs ask the receiver before they send: 64 KiB, of which Open MPI's header is a part. */
#define EAGER_BYTES 65400.0

/* The library cuts messages between sites into parts of so many bytes, so that the MPI needn't ask. Very long ones
 * would gain too little. */
#define CUT_BYTES (60 * 1024)
#define CUT_MOST (32 * CUT_BYTES)

/* What an MPI does for a message, whatever its size. */
#define MESSAGE_SECONDS 1e-6

double lan_seconds(const struct shape *shape, double bytes);

/* Messages of the MPI that cross at once: the bytes of one, and all that one site's link carries. */
double crossing_seconds(const struct shape *shape, double bytes, double link_bytes);

/* The same of the library's messages, here and below. */
double own_crossing_seconds(const struct shape *shape, double bytes, double link_bytes);

/* One message to each of the other subsets, of `bytes` each, at one level after the other: from the
 * level `first` inwards, or outwards up to it. Each is cut over `lanes` connections. */
double levels_seconds(const struct shape *shape, int first, double bytes, int lanes);

/* The same from the widest level on, of what all ranks of a subset have, `bytes` each. */
double gathered_seconds(const struct shape *shape, double bytes);

/* The bytes that count for the rate, of those of a connection and of its site's link. */
double rated_bytes(const struct shape *shape, double bytes, double link_bytes);

/* The least n with 2^n >= count. */
int steps_of(int count);

/* What each algorithm takes, such as leaders_seconds(). native_seconds() is for the MPI's own on the whole
 * communicator: of Open MPI the one that it chooses, of others the fastest of those that they have for this size. */
#define X(value, name, ...) double name##_seconds(enum operation operation, const struct shape *shape, double bytes);
ESTIMATED_OF(X)
#undef X

#endif
