C     circle with mpif.h: see circle.cpp.
      program circle
      implicit none
      include 'mpif.h'
      integer rank, ranks, ierr, i
      integer mine(1000), got(1000), total
      integer status(MPI_STATUS_SIZE)

      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
      do i = 1, 1000
         mine(i) = rank
         got(i) = -1
      end do
      call MPI_SENDRECV(mine, 1000, MPI_INTEGER, mod(rank + 1, ranks),
     &     0, got, 1000, MPI_INTEGER, mod(rank + ranks - 1, ranks), 0,
     &     MPI_COMM_WORLD, status, ierr)
      call MPI_ALLREDUCE(got(1000), total, 1, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, ierr)
      if (got(1000) .ne. mod(rank + ranks - 1, ranks) .or.
     &     total .ne. ranks * (ranks - 1) / 2) then
         call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
      end if
      if (rank .eq. 0) print '(A)', ' No Errors'
      call MPI_FINALIZE(ierr)
      end
