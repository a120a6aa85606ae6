/* Cartesian and distributed graph topologies with reordering, over two sites: six ranks in turns. With
 * topologies/reorder less goes between sites, and the topology is what was asked. `graphs as-is`, with
 * topologies/turns: ranks stay as they are. */
#include "../../include/isthmus_mpi.h"
#include "check.h"

enum { RANKS = 6 };
static int is_reordered;

static int site_of_world(int rank)
{
    return rank % 2;
}

/* The rank in MPI_COMM_WORLD of another rank. */
static int world_rank(MPI_Comm comm, int rank)
{
    MPI_Group group, world;
    int found;
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, 1, &rank, world, &found);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return found;
}

static int site(MPI_Comm comm, int rank)
{
    return site_of_world(world_rank(comm, rank));
}

/* The number of this rank's neighbours at the other site, summed over the ranks. */
static int crossings(MPI_Comm comm, const int *neighbours, int count)
{
    int rank, own = 0, all;
    MPI_Comm_rank(comm, &rank);
    for (int i = 0; i < count; i++)
        own += neighbours[i] >= 0 && site(comm, neighbours[i]) != site(comm, rank);
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, comm);
    return all;
}

/* Each edge is seen from both of its ends. */
static void check_cart(int reorder)
{
    int dims[] = {3, 2}, periods[] = {0, 0}, neighbours[4], rank, coordinates[2], again;
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, reorder, &cart);
    MPI_Comm_rank(cart, &rank);
    MPI_Cart_coords(cart, rank, 2, coordinates);
    CHECK(coordinates[0] == rank / 2 && coordinates[1] == rank % 2);
    MPI_Cart_rank(cart, coordinates, &again);
    CHECK(again == rank);
    MPI_Cart_shift(cart, 0, 1, &neighbours[0], &neighbours[1]);
    MPI_Cart_shift(cart, 1, 1, &neighbours[2], &neighbours[3]);
    /* Rows of two are cut as it is, and no cut is better. */
    CHECK(crossings(cart, neighbours, 4) == 6);
    MPI_Comm_free(&cart);

    /* A line, of which every edge is between sites as it is. */
    int line[] = {RANKS}, open[] = {0};
    MPI_Cart_create(MPI_COMM_WORLD, 1, line, open, reorder, &cart);
    MPI_Comm_rank(cart, &rank);
    MPI_Cart_shift(cart, 0, 1, &neighbours[0], &neighbours[1]);
    CHECK(neighbours[0] == (rank ? rank - 1 : MPI_PROC_NULL));
    CHECK(crossings(cart, neighbours, 2) == (reorder && is_reordered ? 2 : 10));
    if (!reorder || !is_reordered)
        CHECK(world_rank(cart, rank) == rank);
    MPI_Comm_free(&cart);

    /* A ring of them: the two ends belong together, too. */
    int closed[] = {1};
    MPI_Cart_create(MPI_COMM_WORLD, 1, line, closed, reorder, &cart);
    MPI_Cart_shift(cart, 0, 1, &neighbours[0], &neighbours[1]);
    CHECK(crossings(cart, neighbours, 2) == (is_reordered ? 4 : 12));
    MPI_Comm_free(&cart);

    /* Smaller than the communicator: the others get none. */
    int small[] = {4};
    MPI_Cart_create(MPI_COMM_WORLD, 1, small, open, reorder, &cart);
    int in = cart != MPI_COMM_NULL, all;
    MPI_Allreduce(&in, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == 4);
    if (in)
        MPI_Comm_free(&cart);
}

/* Where reordering is left to the MPI, it is its own affair: Open MPI may do it. */
static int is_left_to_mpi(int reorder)
{
    return reorder && !is_reordered;
}

/* A ring, each vertex with its next and its last, in this order. */
static void check_adjacent(int reorder, int weighted)
{
    int rank, neighbours[2], in[2], out[2], in_weights[2], out_weights[2], weights[2], degrees[3], got[2];
    MPI_Comm ring;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    neighbours[0] = (rank + 1) % RANKS;
    neighbours[1] = (rank + RANKS - 1) % RANKS;
    weights[0] = 10 + rank;
    weights[1] = 10 + neighbours[1];
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, neighbours, weighted ? weights : MPI_UNWEIGHTED, 2, neighbours,
                                   weighted ? weights : MPI_UNWEIGHTED, MPI_INFO_NULL, reorder, &ring);
    if (is_left_to_mpi(reorder)) {
        MPI_Comm_free(&ring);
        return;
    }
    MPI_Comm_rank(ring, &rank);
    MPI_Dist_graph_neighbors_count(ring, &degrees[0], &degrees[1], &degrees[2]);
    CHECK(degrees[0] == 2 && degrees[1] == 2 && !degrees[2] == !weighted);
    MPI_Dist_graph_neighbors(ring, 2, in, weighted ? in_weights : MPI_UNWEIGHTED, 2, out,
                             weighted ? out_weights : MPI_UNWEIGHTED);
    CHECK(in[0] == (rank + 1) % RANKS && in[1] == (rank + RANKS - 1) % RANKS && out[0] == in[0] && out[1] == in[1]);
    CHECK(!weighted || (in_weights[0] == 10 + rank && in_weights[1] == 10 + in[1] && out_weights[0] == 10 + rank));
    CHECK(crossings(ring, out, 2) == (reorder ? 4 : 12));
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, ring);
    CHECK(got[0] == in[0] && got[1] == in[1]);
    MPI_Comm_free(&ring);
}

/* The same ring, all of it said by rank 0. */
static void check_general(int reorder)
{
    int rank, sources[RANKS], degrees[RANKS], destinations[2 * RANKS], counts[3], in[2], out[2];
    MPI_Comm ring;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < RANKS; i++) {
        sources[i] = i;
        degrees[i] = 2;
        destinations[2 * i] = (i + 1) % RANKS;
        destinations[2 * i + 1] = (i + RANKS - 1) % RANKS;
    }
    MPI_Dist_graph_create(MPI_COMM_WORLD, rank == 0 ? RANKS : 0, sources, degrees, destinations, MPI_UNWEIGHTED,
                          MPI_INFO_NULL, reorder, &ring);
    if (is_left_to_mpi(reorder)) {
        MPI_Comm_free(&ring);
        return;
    }
    MPI_Comm_rank(ring, &rank);
    MPI_Dist_graph_neighbors_count(ring, &counts[0], &counts[1], &counts[2]);
    CHECK(counts[0] == 2 && counts[1] == 2 && !counts[2]);
    MPI_Dist_graph_neighbors(ring, 2, in, MPI_UNWEIGHTED, 2, out, MPI_UNWEIGHTED);
    CHECK(in[0] + in[1] == (rank + 1) % RANKS + (rank + RANKS - 1) % RANKS);
    CHECK(crossings(ring, out, 2) == (reorder ? 4 : 12));
    MPI_Comm_free(&ring);
}

/* Two pairs among the vertices that aren't `a` or `b`, which have no edges. -1: one of these. */
static int partner_of(int vertex, int a, int b)
{
    int others[RANKS], count = 0, own = -1;
    for (int v = 0; v < RANKS; v++) {
        if (v == a || v == b)
            continue;
        if (v == vertex)
            own = count;
        others[count++] = v;
    }
    return own < 0 ? -1 : others[own ^ 1];
}

static int edge_weight(int from, int to)
{
    return 1 + from * RANKS + to;
}

/* The calling rank has the edges of the vertex that it plays, with their weights. Returns how
 * many ranks have given none and have come to play a vertex that has some. */
static int check_pairs(MPI_Comm graph, int a, int b)
{
    int rank, vertex, in, out, in_weight, out_weight, degrees[3], sum;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_rank(graph, &vertex);
    int partner = partner_of(vertex, a, b), lonely = partner < 0;
    MPI_Dist_graph_neighbors_count(graph, &degrees[0], &degrees[1], &degrees[2]);
    CHECK(degrees[0] == !lonely && degrees[1] == !lonely && degrees[2]);
    MPI_Dist_graph_neighbors(graph, degrees[0], &in, &in_weight, degrees[1], &out, &out_weight);
    CHECK(lonely || (in == partner && in_weight == edge_weight(partner, vertex)));
    CHECK(lonely || (out == partner && out_weight == edge_weight(vertex, partner)));
    int moved = partner_of(rank, a, b) < 0 && !lonely;
    MPI_Allreduce(&moved, &sum, 1, MPI_INT, MPI_SUM, graph);
    return sum;
}

/* A graph has weights if some ranks give weights and those without edges MPI_WEIGHTS_EMPTY. */
static int check_empty(int a, int b, int adjacent)
{
    int rank, one = 1;
    MPI_Comm graph;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int partner = partner_of(rank, a, b), edges = partner >= 0;
    int in_weight = edge_weight(partner, rank), out_weight = edge_weight(rank, partner);
    const int *in = edges ? &in_weight : MPI_WEIGHTS_EMPTY, *out = edges ? &out_weight : MPI_WEIGHTS_EMPTY;
    if (adjacent)
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, edges, &partner, in, edges, &partner, out, MPI_INFO_NULL, 1, &graph);
    else
        MPI_Dist_graph_create(MPI_COMM_WORLD, edges, &rank, &one, &partner, out, MPI_INFO_NULL, 1, &graph);
    int moved = is_left_to_mpi(1) ? 0 : check_pairs(graph, a, b);
    MPI_Comm_free(&graph);
    return moved;
}

static void check_all_empty(void)
{
    for (int adjacent = 0; adjacent < 2; adjacent++) {
        int moved = 0;
        for (int a = 2; a < RANKS; a++)
            moved += check_empty(a, a - 2, adjacent);
        CHECK(!is_reordered || moved > 0);
    }
}

/* The MPI's own function says what is wrong, on every rank. */
static void check_errors(void)
{
    MPI_Comm quiet, made;
    int dims[] = {RANKS + 1}, periods[] = {0}, neighbour = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    CHECK(MPI_Cart_create(quiet, 1, dims, periods, 1, &made) != MPI_SUCCESS);
    CHECK(MPI_Cart_create(quiet, -1, dims, periods, 1, &made) != MPI_SUCCESS);
    CHECK(MPI_Dist_graph_create_adjacent(quiet, -1, &neighbour, MPI_UNWEIGHTED, 1, &neighbour, MPI_UNWEIGHTED,
                                         MPI_INFO_NULL, 1, &made) != MPI_SUCCESS);
    MPI_Comm_free(&quiet);
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == RANKS);
    is_reordered = argc == 1;
    check_cart(1);
    for (int reorder = 0; reorder < 2; reorder++) {
        check_adjacent(reorder, 0);
        check_adjacent(reorder, 1);
        check_general(reorder);
    }
    check_all_empty();
    check_errors();
    MPI_Finalize();
    return 0;
}
