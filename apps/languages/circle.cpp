// circle: every rank hands its number on to the next; all of them add up what
// they got and compare. The same program in each language that MPI has
// bindings for. Prints " No Errors" on rank 0; status 1 if a number is wrong.
#include <mpi.h>

#include <iostream>
#include <vector>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    std::vector<int> mine(1000, rank);
    std::vector<int> got(1000, -1);
    MPI_Sendrecv(mine.data(), 1000, MPI_INT, next, 0, got.data(), 1000, MPI_INT, previous, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int sum = 0;
    MPI_Allreduce(&got.back(), &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

    const bool right = got.back() == previous && sum == size * (size - 1) / 2;
    if (rank == 0 && right) {
        std::cout << " No Errors" << std::endl;
    }
    MPI_Finalize();
    return right ? 0 : 1;
}
