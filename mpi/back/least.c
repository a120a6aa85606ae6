#include "least.h"

/* As many messages as bring something to every other site, or from there. */
struct least least_crossing(enum operation operation, const struct shape *shape, size_t bytes)
{
    unsigned long long others = (unsigned long long)shape->sites - 1, size = (unsigned long long)shape->size, all = bytes;
    /* Ranks at other sites, for one at the largest. */
    unsigned long long away = size - (unsigned long long)shape->largest;
    switch (operation) {
    case OP_BARRIER: return (struct least){ 2 * others, 0 };
    case OP_BCAST:
    case OP_REDUCE: return (struct least){ others, others * all };
    case OP_ALLREDUCE: return (struct least){ 2 * others, 2 * others * all };
    case OP_GATHER:
    case OP_SCATTER: return (struct least){ others, away * all };
    /* Each site needs the blocks of all others. */
    case OP_ALLGATHER: return (struct least){ 2 * others, others * size * all };
    case OP_REDUCE_SCATTER: return (struct least){ 2 * others, others * all };
    case OP_ALLTOALL: return (struct least){ 2 * others, away * all };
    case OPERATIONS: break;
    }
    return (struct least){ 0, 0 };
}
