      program main
      implicit none
      include 'mpif.h'
      integer ierror, rank, ranks, total, number
      call MPI_Init(ierror)
      call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
      call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
      number = 0
      if (rank .eq. 1) number = 42
      call MPI_Bcast(number, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, ierror)
      call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierror)
      if (number .ne. 42 .or. total .ne. ranks * (ranks - 1) / 2)
     &  call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
      call MPI_Finalize(ierror)
      end
