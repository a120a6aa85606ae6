/* Processes that meet later. Two ranks start two more; all four are known in the merged
 * communicator, and collectives cross between their sites there. With topologies/turns. */
#include "../../include/isthmus_mpi.h"
#include "check.h"

/* Only those that the job has begun with have one. */
static void check_groups(MPI_Comm merged)
{
    char name[8];
    for (int i = 0; i < 4; i++) {
        int group, expected = i < 2 ? i : -1;
        CHECK(isthmus_group(merged, i, &group, name, sizeof name) == MPI_SUCCESS);
        CHECK(group == expected && !strcmp(name, i == 0 ? "first" : i == 1 ? "others" : ""));
    }
}

/* Both worlds have one rank at each site: the second and the third of the merged ones are
 * at different sites, too. */
static void check_merged(MPI_Comm inter, int child)
{
    MPI_Comm merged, part;
    int **colors, *depths, found, rank, size, value, sum;
    CHECK(MPI_Comm_get_attr(inter, MPICHX_TOPOLOGY_COLORS, &colors, &found) == MPI_SUCCESS && !found);
    MPI_Intercomm_merge(inter, child, &merged);
    MPI_Comm_rank(merged, &rank);
    MPI_Comm_size(merged, &size);
    CHECK(size == 4);
    CHECK(MPI_Comm_get_attr(merged, MPICHX_TOPOLOGY_DEPTHS, &depths, &found) == MPI_SUCCESS && found);
    CHECK(MPI_Comm_get_attr(merged, MPICHX_TOPOLOGY_COLORS, &colors, &found) == MPI_SUCCESS && found);
    for (int i = 0; i < 4; i++)
        CHECK(depths[i] == 3 && colors[i][0] == 0 && colors[i][1] == i % 2 && colors[i][2] == i % 2);
    check_groups(merged);
    value = rank == 3 ? 42 : 0;
    MPI_Bcast(&value, 1, MPI_INT, 3, merged);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged);
    CHECK(value == 42 && sum == 6);
    CHECK(isthmus_comm_split(merged, "isthmus://site", 0, &part) == MPI_SUCCESS);
    MPI_Comm_size(part, &size);
    CHECK(size == 2);
    MPI_Comm_free(&part);
    /* A part of it, which no world has. */
    MPI_Comm_split(merged, rank == 0 || rank == 3, rank, &part);
    CHECK(MPI_Comm_get_attr(part, MPICHX_TOPOLOGY_COLORS, &colors, &found) == MPI_SUCCESS && found);
    CHECK(colors[0][1] != colors[1][1]);
    MPI_Comm_free(&part);
    MPI_Comm_free(&merged);
}

int main(int argc, char **argv)
{
    MPI_Comm inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&inter);
    int child = inter != MPI_COMM_NULL;
    if (!child)
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    check_merged(inter, child);
    MPI_Comm_disconnect(&inter);
    MPI_Finalize();
    return 0;
}
