/* Send and receive buffers that are the same at one rank only. MPI forbids it; what an MPI takes
 * all the same, the library must take with the same result, and what it refuses, refuse. */
#include "differ.h"

#include <stdio.h>
#include <string.h>

#define RANKS_MAX 64
#define COUNT_MAX 2

static const struct native ours_too = {
#define X(name) .name = MPI_##name,
    NATIVE_CALLS(X)
#undef X
};

/* One call at one rank. Blocks are sent from `send` and received in `recv`, but for the block that
 * is received where it is sent from, if `equal`. */
struct setting {
    MPI_Comm comm;
    int rank, size, root, count, equal;
    int counts[RANKS_MAX], displs[RANKS_MAX];
    unsigned send[RANKS_MAX * COUNT_MAX], recv[RANKS_MAX * COUNT_MAX];
};

#define T MPI_UNSIGNED
#define OWN(buffer) (s->buffer + s->displs[s->rank])
#define FROM (s->equal ? OWN(recv) : s->send)
#define TO (s->equal ? OWN(send) : s->recv)
#define OPERATIONS(X) \
    X(Reduce, s->equal ? s->recv : s->send, s->recv, s->count, T, MPI_SUM, s->root) \
    X(Allreduce, s->equal ? s->recv : s->send, s->recv, s->count, T, MPI_SUM) \
    X(Gather, FROM, s->count, T, s->recv, s->count, T, s->root) \
    X(Gatherv, FROM, s->count, T, s->recv, s->counts, s->displs, T, s->root) \
    X(Scatter, s->send, s->count, T, TO, s->count, T, s->root) \
    X(Scatterv, s->send, s->counts, s->displs, T, TO, s->count, T, s->root) \
    X(Allgather, FROM, s->count, T, s->recv, s->count, T) \
    X(Allgatherv, FROM, s->count, T, s->recv, s->counts, s->displs, T) \
    X(Reduce_scatter, s->send, s->equal ? s->send : s->recv, s->counts, T, MPI_SUM) \
    X(Reduce_scatter_block, s->send, s->equal ? s->send : s->recv, s->count, T, MPI_SUM) \
    X(Alltoall, s->send, s->count, T, s->equal ? s->send : s->recv, s->count, T) \
    X(Alltoallv, s->send, s->counts, s->displs, T, s->equal ? s->send : s->recv, s->counts, s->displs, T)

#define X(name, ...) \
    static int call_##name(const struct native *mpi, struct setting *s) \
    { \
        return mpi->name(__VA_ARGS__, s->comm); \
    }
OPERATIONS(X)
#undef X

static const struct {
    const char *name;
    int (*call)(const struct native *mpi, struct setting *s);
} operations[] = {
#define X(name, ...) { #name, call_##name },
    OPERATIONS(X)
#undef X
};

static void set(struct setting *s, MPI_Comm comm, int count)
{
    memset(s, 0, sizeof *s);
    MPI_Comm_rank(comm, &s->rank);
    MPI_Comm_size(comm, &s->size);
    s->comm = comm;
    s->root = s->size - 1;
    s->count = count;
    s->equal = s->rank == s->root;
    for (int r = 0; r < s->size; r++) {
        s->counts[r] = count;
        s->displs[r] = r * count;
    }
    for (int i = 0; i < s->size * count; i++) {
        s->send[i] = (unsigned)(s->rank * 1000 + i);
        s->recv[i] = (unsigned)(s->rank * 1000 + 500 + i);
    }
}

static int differs(size_t operation, MPI_Comm comm, int count)
{
    static struct setting ours, theirs;
    set(&theirs, MPI_COMM_SELF, count);
    int refused = error_class(operations[operation].call(&native, &theirs));
    set(&ours, comm, count);
    /* Others would wait for the one whose call is refused. */
    if (refused != MPI_SUCCESS)
        return ours.equal && error_class(operations[operation].call(&ours_too, &ours)) != refused;
    set(&theirs, comm, count);
    if (operations[operation].call(&native, &theirs) != operations[operation].call(&ours_too, &ours))
        return 1;
    /* Blocks that others send may come to lie on those that are still to be sent. */
    if (strncmp(operations[operation].name, "Alltoall", 8) == 0)
        return 0;
    return memcmp(ours.send, theirs.send, sizeof ours.send) != 0 || memcmp(ours.recv, theirs.recv, sizeof ours.recv) != 0;
}

int equal_differ(MPI_Comm comm)
{
    int failures = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (size_t operation = 0; operation < sizeof operations / sizeof *operations; operation++)
        for (int count = 1; count <= COUNT_MAX; count++)
            if (differs(operation, comm, count)) {
                fprintf(stderr, "differ: %s with equal buffers of %d differs\n", operations[operation].name, count);
                failures++;
            }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    return failures;
}
