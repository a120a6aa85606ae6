/* Source: ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, of which 4.1.4 and 5.0.9 say the same. With few ranks the
 * times of patterns differ most: a large MPI_Reduce of four to seven takes one rank after the other. */
#include "openmpi.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>

/* With less than so many ranks and bytes. Rows of as many ranks follow one another. */
struct row {
    int ranks;
    double bytes;
    enum pattern pattern;
};

static const struct row bcast[] = {
    { 4, 32, CHAIN },
    { 4, 256, BINARY },
    { 4, 512, CHAIN },
    { 4, 32768, LINEAR },
    { 4, 131072, BINARY },
    { 4, 262144, CHAIN },
    { 4, 524288, LINEAR },
    { 4, 1048576, BINOMIAL },
    { 4, INFINITY, BINARY },
    { 8, 64, BINARY },
    { 8, 128, BINOMIAL },
    { 8, 2048, BINARY },
    { 8, 8192, BINOMIAL },
    { 8, 1048576, LINEAR },
    { 8, INFINITY, CHAIN },
    { 16, 8, KNOMIAL },
    { 16, 64, BINARY },
    { 16, 4096, KNOMIAL },
    { 16, 16384, BINARY },
    { 16, 32768, BINOMIAL },
    { 16, INFINITY, LINEAR },
    { 32, 4096, KNOMIAL },
    { 32, 1048576, BINOMIAL },
    { 32, INFINITY, OTHER },
    { 64, 2048, BINOMIAL },
    { 128, INFINITY, KNOMIAL },
    { 256, 2, BINOMIAL },
    { 256, 16384, BINARY },
    { 256, 32768, LINEAR },
    { 256, 65536, BINARY },
    { 1024, INFINITY, KNOMIAL },
    { 2048, 524288, KNOMIAL },
    { 2048, INFINITY, OTHER },
    { INT_MAX, 262144, KNOMIAL },
    { INT_MAX, INFINITY, OTHER },
};

/* Where Open MPI takes the scatter and the gather of Rabenseifner, of less than 8 bytes, a tree is as good. */
static const struct row reduce[] = {
    { 4, 8, BINOMIAL },
    { 4, 16, BINARY },
    { 4, 32, CHAIN },
    { 4, 262144, LINEAR },
    { 4, INFINITY, CHAIN },
    { 8, 4096, BINARY },
    { 8, 65536, CHAIN },
    { 8, 262144, BINOMIAL },
    { 8, 524288, LINEAR },
    { 8, 1048576, BINOMIAL },
    { 8, INFINITY, LINEAR },
    { 16, 8192, BINARY },
    { 32, 4096, BINARY },
    { INT_MAX, INFINITY, BINOMIAL },
};

/* From 128 ranks on, it takes neighbours for some sizes in between as well, and from 512 on for all. */
static const struct row allgather[] = {
    { 32, INFINITY, OTHER },
    { INT_MAX, 1024, OTHER },
    { INT_MAX, 65536, NEIGHBOURS },
    { INT_MAX, INFINITY, RING },
};

static enum pattern pattern_of(const struct row *row, const struct row *end, int ranks, double bytes)
{
    while (row + 1 < end && !(ranks < row->ranks && bytes < row->bytes))
        row++;
    return row->pattern;
}

enum pattern open_mpi_bcast(int ranks, double bytes)
{
    return pattern_of(bcast, bcast + sizeof bcast / sizeof *bcast, ranks, bytes);
}

enum pattern open_mpi_reduce(int ranks, double bytes)
{
    return pattern_of(reduce, reduce + sizeof reduce / sizeof *reduce, ranks, bytes);
}

enum pattern open_mpi_allgather(int ranks, double bytes)
{
    enum pattern pattern = pattern_of(allgather, allgather + sizeof allgather / sizeof *allgather, ranks, bytes);
    /* An odd number of ranks can't pair up. */
    return pattern == NEIGHBOURS && ranks % 2 ? RING : pattern;
}
