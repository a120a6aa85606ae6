#include "narrow.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

#define ARGUMENTS_MAX 9

/* What the arguments are: b a buffer, B one that only the root has, n the count that belongs
 * to the buffer before it, N such counts of all ranks, D their displacements, r the root, c the
 * communicator, anything else as it is. A count without such a buffer is significant at all ranks. */
static const char *const shapes[CALLS] = {
    [CALL_Bcast_c] = "-n-rc",
    [CALL_Reduce_c] = "--n--rc",
    [CALL_Allreduce_c] = "--n--c",
    [CALL_Gather_c] = "bn-Bn-rc",
    [CALL_Gatherv_c] = "bn-BND-rc",
    [CALL_Scatter_c] = "Bn-bn-rc",
    [CALL_Scatterv_c] = "BND-bn-rc",
    [CALL_Allgather_c] = "bn-bn-c",
    [CALL_Allgatherv_c] = "bn-bND-c",
    [CALL_Reduce_scatter_c] = "--N--c",
    [CALL_Reduce_scatter_block_c] = "--n--c",
    [CALL_Alltoall_c] = "bn-bn-c",
    [CALL_Alltoallv_c] = "bND-bND-c",
};

/* Whether a buffer is MPI_IN_PLACE, which is a small number or -1 in every MPI. Null is a buffer,
 * of nothing. */
static int is_in_place(word buffer)
{
    enum { PAGE = 4096 };
    return buffer != 0 && (buffer < PAGE || buffer == (word)-1);
}

/* An MPI's PMPI function of two arguments, of which the second is an int that it sets. */
static int ask(void *mpi, const char *name, word comm)
{
    word (*call)(word, int *) = (word(*)(word, int *))(function)dlsym(mpi, name);
    int answer = -1;
    return call && (int)call(comm, &answer) == 0 ? answer : -1;
}

static int fits(int64_t number)
{
    return number >= INT_MIN && number <= INT_MAX;
}

/* The same numbers as ints, or NULL. */
static int *ints(const int64_t *numbers, int size)
{
    int *narrow = malloc((size_t)(size > 0 ? size : 1) * sizeof *narrow);
    for (int i = 0; narrow && i < size; i++) {
        if (!fits(numbers[i])) {
            free(narrow);
            return NULL;
        }
        narrow[i] = (int)numbers[i];
    }
    return narrow;
}

/* Replaces counts and displacements. `lists` gets what is to be freed. 0 or -1. */
static int replace(const char *shape, word *arguments, int **lists, void *mpi)
{
    word comm = arguments[strcspn(shape, "c")];
    int size = ask(mpi, "PMPI_Comm_size", comm), rooted = strchr(shape, 'r') != NULL;
    if (ask(mpi, "PMPI_Comm_test_inter", comm) != 0)
        return -1;
    int at_root = !rooted || ask(mpi, "PMPI_Comm_rank", comm) == (int)arguments[strcspn(shape, "r")];
    int is_significant = 1;
    for (int i = 0; shape[i]; i++) {
        if (shape[i] == 'b' || shape[i] == 'B')
            is_significant = !is_in_place(arguments[i]) && (shape[i] == 'b' || at_root);
        if (shape[i] == 'n' && !fits((int64_t)arguments[i])) {
            if (is_significant)
                return -1;
            arguments[i] = 0;
        }
        /* Lists that aren't looked at may not be there. */
        int list = shape[i] == 'N' || shape[i] == 'D';
        if (!list || !is_significant || !arguments[i])
            continue;
        lists[i] = ints((const int64_t *)arguments[i], size);
        if (!lists[i])
            return -1;
        arguments[i] = (word)lists[i];
    }
    return 0;
}

word narrow_call(void *mpi, enum call call, const char *name, const word *given)
{
    char ordinary[64];
    word w[ARGUMENTS_MAX] = {0}, rc = FAILED;
    int *lists[ARGUMENTS_MAX] = {NULL};
    memcpy(w, given, strlen(shapes[call]) * sizeof *w);
    /* Without "_c". */
    snprintf(ordinary, sizeof ordinary, "%.*s", (int)strlen(name) - 2, name);
    word (*target)(TYPES_9) = (word(*)(TYPES_9))(function)dlsym(mpi, ordinary);
    if (target && replace(shapes[call], w, lists, mpi) == 0)
        rc = target(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]);
    for (int i = 0; i < ARGUMENTS_MAX; i++)
        free(lists[i]);
    return rc;
}
