! circle with `use mpi_f08`: see circle.cpp.
program circle
  use mpi_f08
  implicit none
  integer :: rank, ranks, previous, total
  integer :: mine(1000), got(1000)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  previous = mod(rank + ranks - 1, ranks)
  mine = rank
  got = -1
  call MPI_Sendrecv(mine, 1000, MPI_INTEGER, mod(rank + 1, ranks), 0, got, 1000, MPI_INTEGER, &
                    previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call MPI_Allreduce(got(1000), total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (got(1000) /= previous .or. total /= ranks * (ranks - 1) / 2) then
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end if
  if (rank == 0) print '(A)', ' No Errors'
  call MPI_Finalize()
end program circle
