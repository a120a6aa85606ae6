program main
  use mpi
  implicit none
  integer :: ierror, rank, ranks, total, number
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  number = merge(42, 0, rank == 1)
  call MPI_Bcast(number, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, ierror)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (number /= 42 .or. total /= ranks * (ranks - 1) / 2) call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  call MPI_Finalize(ierror)
end program
