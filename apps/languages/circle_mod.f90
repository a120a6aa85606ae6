! circle with `use mpi`: see circle.cpp.
program circle
  use mpi
  implicit none
  integer :: rank, ranks, previous, total, ierr
  integer :: mine(1000), got(1000)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  previous = mod(rank + ranks - 1, ranks)
  mine = rank
  got = -1
  call MPI_Sendrecv(mine, 1000, MPI_INTEGER, mod(rank + 1, ranks), 0, got, 1000, MPI_INTEGER, &
                    previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call MPI_Allreduce(got(1000), total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (got(1000) /= previous .or. total /= ranks * (ranks - 1) / 2) then
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end if
  if (rank == 0) print '(A)', ' No Errors'
  call MPI_Finalize(ierr)
end program circle
