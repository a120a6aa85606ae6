#include "exchange.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

static int by_cell(const void *left, const void *right)
{
    uint32_t a = ((const struct entry *)left)->cell, b = ((const struct entry *)right)->cell;
    return (a > b) - (a < b);
}

struct entry *entries_of(const struct mesh *mesh)
{
    struct entry *entries = allocate(mesh->covered_count * sizeof *entries);
    for (size_t i = 0; i < mesh->covered_count; i++) {
        uint32_t cell = mesh->covered[i];
        entries[i] = (struct entry){mesh->cover[cell].length_mm, mesh->cover[cell].rays, cell};
    }
    qsort(entries, mesh->covered_count, sizeof *entries, by_cell);
    return entries;
}

void entries_add(struct mesh *mesh, const struct entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mesh_cover(mesh, entries[i].cell, entries[i].length_mm, entries[i].rays);
}

/* Where a rank's range of the cells begins. */
static size_t range_begins(size_t cells, int rank, int size)
{
    return cells * (size_t)rank / (size_t)size;
}

/* Adds up counts to where each begins. Returns their sum. */
static int offsets(const int *count, int *offset, int size)
{
    int sum = 0;
    for (int i = 0; i < size; i++) {
        offset[i] = sum;
        sum += count[i];
    }
    return sum;
}

/* How many entries each rank has in each one's range. */
static void count_by_range(const struct mesh *mesh, const struct entry *entries, size_t count, int size, int *send)
{
    int rank = 0;
    memset(send, 0, (size_t)size * sizeof *send);
    for (size_t i = 0; i < count; i++) {
        while (rank + 1 < size && entries[i].cell >= range_begins(mesh->cells, rank + 1, size))
            rank++;
        send[rank]++;
    }
}

void exchange_mesh(MPI_Comm comm, struct mesh *mesh)
{
    int size, rank;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    MPI_Datatype type;
    MPI_Type_contiguous(sizeof(struct entry), MPI_BYTE, &type);
    MPI_Type_commit(&type);

    struct entry *mine = entries_of(mesh);
    int *numbers = allocate(4 * (size_t)size * sizeof *numbers);
    int *send = numbers, *receive = send + size, *send_at = receive + size, *receive_at = send_at + size;
    count_by_range(mesh, mine, mesh->covered_count, size, send);
    MPI_Alltoall(send, 1, MPI_INT, receive, 1, MPI_INT, comm);
    offsets(send, send_at, size);
    size_t got = (size_t)offsets(receive, receive_at, size);
    struct entry *others = allocate(got * sizeof *others);
    MPI_Alltoallv(mine, send, send_at, type, others, receive, receive_at, type, comm);
    mesh_clear(mesh);
    entries_add(mesh, others, got);
    free(mine);
    free(others);

    mine = entries_of(mesh);
    int own = (int)mesh->covered_count;
    MPI_Gather(&own, 1, MPI_INT, receive, 1, MPI_INT, 0, comm);
    got = rank == 0 ? (size_t)offsets(receive, receive_at, size) : 0;
    others = allocate(got * sizeof *others);
    MPI_Gatherv(mine, own, type, others, receive, receive_at, type, 0, comm);
    if (rank == 0) {
        mesh_clear(mesh);
        entries_add(mesh, others, got);
    }
    free(mine);
    free(others);
    free(numbers);
    MPI_Type_free(&type);
}
