/* Data at absolute addresses (MPI_BOTTOM) in every operation that moves data, and a file that is
 * written and read collectively, for which MPIs themselves call collectives so. `absolute FILE`. */
#include "check.h"

enum { RANKS_MAX = 8, INTS = 1000 };

/* What is sent of a cell are the two ints, by one type for each cell. */
struct cell {
    int first;
    char gap[52];
    int last;
};

static struct cell own, send[RANKS_MAX], recv[RANKS_MAX];
static MPI_Datatype own_type, send_type, recv_type;
static int rank, size, counts[RANKS_MAX], displs[RANKS_MAX];

static MPI_Datatype type_at(struct cell *cell)
{
    MPI_Aint places[2];
    MPI_Datatype pair, type;
    MPI_Get_address(&cell->first, &places[0]);
    MPI_Get_address(&cell->last, &places[1]);
    MPI_Type_create_hindexed_block(2, 1, places, MPI_INT, &pair);
    MPI_Type_create_resized(pair, places[0], sizeof *cell, &type);
    MPI_Type_free(&pair);
    MPI_Type_commit(&type);
    return type;
}

/* Whose cell, and, where every rank has one for each, for whom. */
static void fill(struct cell *cell, int from, int to)
{
    cell->first = 100 * from + to;
    cell->last = -cell->first;
}

static int is(const struct cell *cell, int from, int to)
{
    return cell->first == 100 * from + to && cell->last == -cell->first && cell->gap[0] == 0 && cell->gap[51] == 0;
}

static void reset(void)
{
    memset(recv, 0, sizeof recv);
    fill(&own, rank, 0);
    for (int r = 0; r < size; r++)
        fill(&send[r], rank, r);
}

/* Every rank has a cell of every rank: of its block `to`. */
static void expect(int here, int to)
{
    for (int r = 0; r < size; r++)
        CHECK(!here || is(&recv[r], r, to));
    reset();
}

static void expect_own(int root)
{
    CHECK(is(&own, root, rank));
    reset();
}

static void check_moves(MPI_Comm comm)
{
    int root = size - 1;
    reset();
    MPI_Bcast(MPI_BOTTOM, 1, own_type, root, comm);
    CHECK(is(&own, root, 0));
    reset();
    MPI_Gather(MPI_BOTTOM, 1, own_type, MPI_BOTTOM, 1, recv_type, root, comm);
    expect(rank == root, 0);
    MPI_Gatherv(MPI_BOTTOM, 1, own_type, MPI_BOTTOM, counts, displs, recv_type, root, comm);
    expect(rank == root, 0);
    MPI_Scatter(MPI_BOTTOM, 1, send_type, MPI_BOTTOM, 1, own_type, root, comm);
    expect_own(root);
    MPI_Scatterv(MPI_BOTTOM, counts, displs, send_type, MPI_BOTTOM, 1, own_type, root, comm);
    expect_own(root);
    MPI_Allgather(MPI_BOTTOM, 1, own_type, MPI_BOTTOM, 1, recv_type, comm);
    expect(1, 0);
    MPI_Allgatherv(MPI_BOTTOM, 1, own_type, MPI_BOTTOM, counts, displs, recv_type, comm);
    expect(1, 0);
    MPI_Alltoall(MPI_BOTTOM, 1, send_type, MPI_BOTTOM, 1, recv_type, comm);
    expect(1, rank);
    MPI_Alltoallv(MPI_BOTTOM, counts, displs, send_type, MPI_BOTTOM, counts, displs, recv_type, comm);
    expect(1, rank);
}

/* Much in one element: 13 kB, of several types. */
enum { MANY = 1650 };
struct wide {
    int first;
    double many[MANY];
    int last;
};

static struct wide own_wide, all_wide[RANKS_MAX];

static MPI_Datatype wide_type_at(struct wide *wide)
{
    MPI_Aint places[3];
    MPI_Datatype parts, type;
    MPI_Get_address(&wide->first, &places[0]);
    MPI_Get_address(wide->many, &places[1]);
    MPI_Get_address(&wide->last, &places[2]);
    MPI_Type_create_struct(3, (int[]){1, MANY, 1}, places, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE, MPI_INT}, &parts);
    MPI_Type_create_resized(parts, places[0], sizeof *wide, &type);
    MPI_Type_free(&parts);
    MPI_Type_commit(&type);
    return type;
}

static void fill_wide(struct wide *wide, int whose)
{
    wide->first = whose + 1;
    wide->last = -whose - 1;
    for (int i = 0; i < MANY; i++)
        wide->many[i] = whose + i / 2.0;
}

static void expect_wide(const struct wide *wide, int whose)
{
    CHECK(wide->first == whose + 1 && wide->last == -whose - 1);
    for (int i = 0; i < MANY; i++)
        CHECK(wide->many[i] == whose + i / 2.0);
}

static void expect_all_wide(int here)
{
    for (int r = 0; r < size && here; r++)
        expect_wide(&all_wide[r], r);
    memset(all_wide, 0, sizeof all_wide);
}

static void check_wide(MPI_Comm comm)
{
    int root = size - 1;
    MPI_Datatype own_is = wide_type_at(&own_wide), all_are = wide_type_at(all_wide);
    fill_wide(&own_wide, rank);
    MPI_Allgather(MPI_BOTTOM, 1, own_is, MPI_BOTTOM, 1, all_are, comm);
    expect_all_wide(1);
    MPI_Allgatherv(MPI_BOTTOM, 1, own_is, MPI_BOTTOM, counts, displs, all_are, comm);
    expect_all_wide(1);
    MPI_Gather(MPI_BOTTOM, 1, own_is, MPI_BOTTOM, 1, all_are, root, comm);
    expect_all_wide(rank == root);
    MPI_Gatherv(MPI_BOTTOM, 1, own_is, MPI_BOTTOM, counts, displs, all_are, root, comm);
    expect_all_wide(rank == root);
    for (int r = 0; r < size; r++)
        fill_wide(&all_wide[r], 10 * root + r);
    MPI_Scatter(MPI_BOTTOM, 1, all_are, MPI_BOTTOM, 1, own_is, root, comm);
    expect_wide(&own_wide, 10 * root + rank);
    memset(&own_wide, 0, sizeof own_wide);
    MPI_Scatterv(MPI_BOTTOM, counts, displs, all_are, MPI_BOTTOM, 1, own_is, root, comm);
    expect_wide(&own_wide, 10 * root + rank);
    MPI_Bcast(MPI_BOTTOM, 1, own_is, root, comm);
    expect_wide(&own_wide, 10 * root + root);
    MPI_Type_free(&own_is);
    MPI_Type_free(&all_are);
}

/* Every second int of an array, at absolute addresses, the last first. */
static MPI_Datatype scattered(int *ints)
{
    static MPI_Aint places[INTS];
    MPI_Datatype type;
    for (int i = 0; i < INTS; i++)
        MPI_Get_address(&ints[2 * (INTS - 1 - i)], &places[i]);
    MPI_Type_create_hindexed_block(INTS, 1, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Of every `size` ints in the file each rank sees one: that of `whose`. */
static void look_at(MPI_File file, int whose)
{
    MPI_Datatype view;
    MPI_Type_vector(INTS, 1, size, MPI_INT, &view);
    MPI_Type_commit(&view);
    CHECK(MPI_File_set_view(file, whose * (MPI_Offset)sizeof(int), MPI_INT, view, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Type_free(&view);
}

static void check_file(const char *path)
{
    static int ints[2 * INTS];
    int next = (rank + 1) % size;
    MPI_Datatype type = scattered(ints);
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    for (int i = 0; i < INTS; i++)
        ints[2 * i] = rank * INTS + i;
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file) == MPI_SUCCESS);
    look_at(file, rank);
    CHECK(MPI_File_write_at_all(file, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    look_at(file, next);
    CHECK(MPI_File_read_at_all(file, 0, MPI_BOTTOM, 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < INTS; i++)
        CHECK(ints[2 * i] == next * INTS + i && ints[2 * i + 1] == 0);
    /* One rank has nothing to read. */
    CHECK(MPI_File_read_at_all(file, 0, MPI_BOTTOM, rank > 0, type, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_File_close(&file);
    MPI_Info_free(&info);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size <= RANKS_MAX && argc == 2);
    for (int r = 0; r < size; r++) {
        counts[r] = 1;
        displs[r] = r;
    }
    own_type = type_at(&own);
    send_type = type_at(send);
    recv_type = type_at(recv);
    check_moves(MPI_COMM_WORLD);
    check_wide(MPI_COMM_WORLD);
    check_file(argv[1]);
    MPI_Type_free(&own_type);
    MPI_Type_free(&send_type);
    MPI_Type_free(&recv_type);
    MPI_Finalize();
    return 0;
}
