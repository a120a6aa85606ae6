/* What this library did in this process. Counting is safe in several threads at once. */
#ifndef ISTHMUS_COUNTERS_H
#define ISTHMUS_COUNTERS_H

#include "choice.h"
#include "least.h"
#include "spread.h"

/* A call of the program that was taken over, with the algorithm that it took. `is_first`: it is native because the
 * communicator has had few calls. */
void count_call(enum operation operation, enum algorithm algorithm, int is_first);

/* The algorithm of the calling thread's last call that was counted, COUNT_FIRST for one of the first ones, or "" before
 * all of them. */
#define COUNT_FIRST "first"
const char *count_last(void);

/* A message of this library to a rank of the communicator. Counted if the rank is at
 * another site. */
void count_message(const struct spread *spread, int to_rank, size_t bytes);

/* What had to cross for a call that isn't native. One rank of the communicator counts it. */
void count_least(struct least crossing);

/* A topology whose ranks could be put into an order by which its edges between sites weigh less, and
 * whether they were. One rank of the communicator counts it. */
void count_topology(int was_reordered, long long weight, long long weight_reordered);

/* Messages to other sites are counted from here on, as sent from the site `own`. */
void counters_start(const struct topology *topology, int own);

/* Writes the report, where it is wanted. Its format is in docs/collectives.md. */
void counters_report(void);

/* All calls that were counted, of every algorithm, or of those that aren't native. */
long counters_calls(int with_native);

#endif
