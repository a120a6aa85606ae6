#include "messages.h"

#define TAG 2
/* As `simulate` sets it. */
#define WAITS_FROM_BYTES 65536

int tag_of(int tag, long length)
{
    return 2 * tag + (length >= WAITS_FROM_BYTES);
}

struct group group_of(MPI_Comm comm)
{
    struct group group = {.comm = comm};
    PMPI_Comm_size(comm, &group.size);
    PMPI_Comm_rank(comm, &group.me);
    return group;
}

int power_of_two(int size)
{
    int power = 1;
    while (power <= size / 2)
        power *= 2;
    return power;
}

static int rank_of(const struct group *group, int member)
{
    return group->ranks ? group->ranks[member] : member;
}

int give(const struct group *group, const void *bytes, long length, int to)
{
    return PMPI_Send(bytes, (int)length, MPI_BYTE, rank_of(group, to), tag_of(TAG, length), group->comm);
}

int take(const struct group *group, void *bytes, long length, int from)
{
    return PMPI_Recv(bytes, (int)length, MPI_BYTE, rank_of(group, from), tag_of(TAG, length), group->comm, MPI_STATUS_IGNORE);
}

int start_giving(const struct group *group, const void *bytes, long length, int to, MPI_Request *request)
{
    return PMPI_Isend(bytes, (int)length, MPI_BYTE, rank_of(group, to), tag_of(TAG, length), group->comm, request);
}

int start_taking(const struct group *group, void *bytes, long length, int from, MPI_Request *request)
{
    return PMPI_Irecv(bytes, (int)length, MPI_BYTE, rank_of(group, from), tag_of(TAG, length), group->comm, request);
}

int swap(const struct group *group, const void *given, long given_length, int to, void *taken, long taken_length, int from)
{
    return PMPI_Sendrecv(given, (int)given_length, MPI_BYTE, rank_of(group, to), tag_of(TAG, given_length), taken, (int)taken_length,
                         MPI_BYTE, rank_of(group, from), tag_of(TAG, taken_length), group->comm, MPI_STATUS_IGNORE);
}

int combine(const struct vector *vector, const void *items, void *sum, int count)
{
    return PMPI_Reduce_local(items, sum, count, vector->type, vector->op);
}
