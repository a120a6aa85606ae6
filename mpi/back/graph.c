/* MPI_Dist_graph_create and MPI_Dist_graph_create_adjacent (MPI-4.1, 8.5.4) with
 * reordering. Every rank knows a part of the graph: they are put together first. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "permuted.h"
#include "real.h"
#include "unweighted.h"

/* Numbers in all lists together, at most; a larger graph isn't reordered. Where it is only said what that
 * would save, less is worth its way. */
#define NUMBERS_MAX (1 << 26)
#define NUMBERS_MAX_UNWANTED (1 << 18)

/* What each rank has of the graph, as four lists one after the other: three or four columns. */
struct lists {
    int size;
    int *length;    /* [size] numbers of each rank, or -1 if its arguments are wrong */
    int *start;     /* [size] */
    int *numbers;
};

static void lists_free(struct lists *lists)
{
    free(lists->length);
    free(lists->start);
    free(lists->numbers);
}

/* Gathers the numbers of all ranks, if it is wanted everywhere, else at rank 0. Returns 1 if there are any
 * to work with, 0 if not (the same on all ranks that have them, but without memory), or -1 after an error
 * of the MPI. */
static int lists_gather(struct lists *lists, const int *own, int length, const struct spread *spread, MPI_Comm comm)
{
    int size = spread->layout.size, wanted = permuted_wanted(), here = wanted || spread->layout.rank == 0;
    long total = 0, most = wanted ? NUMBERS_MAX : NUMBERS_MAX_UNWANTED;
    *lists = (struct lists){
        .size = size,
        .length = malloc((size_t)size * sizeof(int)),
        .start = malloc((size_t)size * sizeof(int)),
    };
    if (real.Allgather(&length, 1, MPI_INT, lists->length, 1, MPI_INT, comm) != MPI_SUCCESS)
        return -1;
    for (int r = 0; r < size; r++) {
        if (lists->length[r] < 0)
            return 0;
        lists->start[r] = (int)total;
        total += lists->length[r];
        if (total > most)
            return 0;
    }
    lists->numbers = here ? malloc((size_t)(total + 1) * sizeof(int)) : NULL;
    int rc = wanted ? real.Allgatherv(own, length, MPI_INT, lists->numbers, lists->length, lists->start, MPI_INT, comm)
                    : real.Gatherv(own, length, MPI_INT, lists->numbers, lists->length, lists->start, MPI_INT, 0, comm);
    return rc == MPI_SUCCESS ? here && total > 0 : -1;
}

static int is_vertex(int number, int size)
{
    return number >= 0 && number < size;
}

/* The rows (from, to, weight) of this rank for MPI_Dist_graph_create; -1 in *length if the
 * arguments are wrong. NULL without memory. */
static int *edge_rows(int n, const int *sources, const int *degrees, const int *destinations, const int *weights,
                      int size, int *length)
{
    long count = 0;
    int weighted = !unweighted(weights), *rows = NULL;
    *length = -1;
    for (int i = 0; i < n; i++) {
        if (degrees[i] < 0 || !is_vertex(sources[i], size) || count + degrees[i] > NUMBERS_MAX / 3)
            return NULL;
        count += degrees[i];
    }
    if (n < 0 || !(rows = malloc((size_t)(count * 3 + 1) * sizeof *rows)))
        return NULL;
    long edge = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < degrees[i]; j++, edge++) {
            int weight = weighted ? weights[edge] : 1;
            if (!is_vertex(destinations[edge], size) || weight < 0) {
                free(rows);
                return NULL;
            }
            memcpy(rows + edge * 3, (int[]){sources[i], destinations[edge], weight}, 3 * sizeof *rows);
        }
    }
    *length = (int)count * 3;
    return rows;
}

int entry_Dist_graph_create(MPI_Comm comm, int n, const int *sources, const int *degrees, const int *destinations,
                            const int *weights, MPI_Info info, int reorder, MPI_Comm *made)
{
    const struct spread *spread = reorder ? spread_of(comm) : NULL;
    if (!spread)
        return real.Dist_graph_create(comm, n, sources, degrees, destinations, weights, info, reorder, made);
    struct lists lists;
    struct edges edges = {0};
    MPI_Comm permuted = MPI_COMM_NULL;
    int length, size = spread->layout.size, rc = MPI_SUCCESS;
    int *rows = edge_rows(n, sources, degrees, destinations, weights, size, &length);
    int usable = lists_gather(&lists, rows, length, spread, comm);
    free(rows);
    for (int r = 0; usable > 0 && r < size; r++)
        for (const int *row = lists.numbers + lists.start[r]; row < lists.numbers + lists.start[r] + lists.length[r]; row += 3)
            if (edges_add(&edges, row[0], row[1], row[2]) != 0)
                usable = 0;
    if (usable > 0)
        rc = permuted_make(spread, &edges, comm, &permuted);
    lists_free(&lists);
    edges_free(&edges);
    if (rc != MPI_SUCCESS)
        return rc;
    /* Vertices are ranks of the new communicator: the arguments stay as they are. */
    rc = real.Dist_graph_create(permuted == MPI_COMM_NULL ? comm : permuted, n, sources, degrees, destinations, weights,
                                info, permuted_wanted() ? 0 : reorder, made);
    if (permuted != MPI_COMM_NULL)
        real.Comm_free(&permuted);
    return rc;
}

/* One rank's arguments of MPI_Dist_graph_create_adjacent. */
struct adjacent {
    int in, out;
    const int *sources, *source_weights, *destinations, *destination_weights;
};

/* Copies a list, of ones if there is none. Returns its end, or NULL if a number is wrong. */
static int *put(int *to, const int *from, int count, int least, int most)
{
    for (int i = 0; i < count; i++) {
        int number = from ? from[i] : 1;
        if (number < least || number >= most)
            return NULL;
        *to++ = number;
    }
    return to;
}

/* The same as numbers: both degrees, the sources, their weights, the destinations, theirs. */
static int *adjacent_pack(const struct adjacent *own, int size, int *length)
{
    *length = -1;
    if (own->in < 0 || own->out < 0 || own->in > NUMBERS_MAX / 4 || own->out > NUMBERS_MAX / 4)
        return NULL;
    int *numbers = malloc((2 + 2 * ((size_t)own->in + (size_t)own->out)) * sizeof *numbers), *end = numbers;
    if (!numbers)
        return NULL;
    *end++ = own->in;
    *end++ = own->out;
    end = put(end, own->sources, own->in, 0, size);
    end = end ? put(end, own->source_weights, own->in, 0, INT_MAX) : NULL;
    end = end ? put(end, own->destinations, own->out, 0, size) : NULL;
    end = end ? put(end, own->destination_weights, own->out, 0, INT_MAX) : NULL;
    if (!end) {
        free(numbers);
        return NULL;
    }
    *length = (int)(end - numbers);
    return numbers;
}

static struct adjacent adjacent_of(const struct lists *lists, int rank)
{
    const int *numbers = lists->numbers + lists->start[rank];
    struct adjacent of = {.in = numbers[0], .out = numbers[1], .sources = numbers + 2};
    of.source_weights = of.sources + of.in;
    of.destinations = of.source_weights + of.in;
    of.destination_weights = of.destinations + of.out;
    return of;
}

/* Every edge is in the lists of both its ends; those of its source are taken. */
static int adjacent_edges(struct edges *edges, const struct lists *lists)
{
    for (int r = 0; r < lists->size; r++) {
        struct adjacent of = adjacent_of(lists, r);
        for (int i = 0; i < of.out; i++)
            if (edges_add(edges, r, of.destinations[i], of.destination_weights[i]) != 0)
                return -1;
    }
    return 0;
}

int entry_Dist_graph_create_adjacent(MPI_Comm comm, int in, const int *sources, const int *source_weights, int out,
                                     const int *destinations, const int *destination_weights, MPI_Info info,
                                     int reorder, MPI_Comm *made)
{
    const struct spread *spread = reorder ? spread_of(comm) : NULL;
    if (!spread)
        return real.Dist_graph_create_adjacent(comm, in, sources, source_weights, out, destinations,
                                               destination_weights, info, reorder, made);
    struct adjacent own = {
        .in = in, .out = out, .sources = sources, .destinations = destinations,
        .source_weights = unweighted(source_weights) ? NULL : source_weights,
        .destination_weights = unweighted(destination_weights) ? NULL : destination_weights,
    };
    struct lists lists;
    struct edges edges = {0};
    MPI_Comm permuted = MPI_COMM_NULL;
    int length, vertex, rc = MPI_SUCCESS;
    int *numbers = adjacent_pack(&own, spread->layout.size, &length);
    int usable = lists_gather(&lists, numbers, length, spread, comm);
    free(numbers);
    if (usable > 0 && adjacent_edges(&edges, &lists) == 0)
        rc = permuted_make(spread, &edges, comm, &permuted);
    edges_free(&edges);
    if (rc == MPI_SUCCESS && permuted == MPI_COMM_NULL)
        rc = real.Dist_graph_create_adjacent(comm, in, sources, source_weights, out, destinations,
                                             destination_weights, info, permuted_wanted() ? 0 : reorder, made);
    else if (rc == MPI_SUCCESS && (rc = real.Comm_rank(permuted, &vertex)) == MPI_SUCCESS) {
        /* Each rank gives the lists of the vertex that it plays, which another rank has given. */
        struct adjacent of = adjacent_of(&lists, vertex);
        rc = real.Dist_graph_create_adjacent(permuted, of.in, of.sources,
                                             is_unweighted(source_weights) ? source_weights : of.source_weights,
                                             of.out, of.destinations,
                                             is_unweighted(destination_weights) ? destination_weights : of.destination_weights,
                                             info, 0, made);
    }
    if (permuted != MPI_COMM_NULL)
        real.Comm_free(&permuted);
    lists_free(&lists);
    return rc;
}
