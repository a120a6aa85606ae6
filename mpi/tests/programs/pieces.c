/* Broadcasts and reductions of 1 MiB, which are worth cutting into pieces, argv[1] times. With "bound", all ranks
 * have one processor. */
#define _GNU_SOURCE
#include <sched.h>

#include "check.h"

enum { COUNT = 1 << 18 };
static int values[COUNT], sums[COUNT];

static int bind_to_first(void)
{
    cpu_set_t all, one;
    int cpu = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return -1;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
    int rank, size, is_bound = argc > 2 ? bind_to_first() == 0 : 1;
    MPI_Init(&argc, &argv);
    CHECK(is_bound);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < atoi(argv[1]); round++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = rank == 0 ? round + i : -1;
        MPI_Bcast(values, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
        CHECK(values[0] == round && values[COUNT - 1] == round + COUNT - 1);
        for (int i = 0; i < COUNT; i++)
            values[i] = rank;
        MPI_Reduce(values, sums, COUNT, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        CHECK(rank != 0 || (sums[0] == size * (size - 1) / 2 && sums[COUNT - 1] == sums[0]));
    }
    MPI_Finalize();
    return 0;
}
