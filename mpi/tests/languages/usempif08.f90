! With the module of isthmus: six ranks, with topologies/levels; given "away", without the
! library.
program main
  use mpi_f08
  use isthmus_mpi
  implicit none
  integer :: rank, ranks, total, number, levels, color, group, ierror
  character(len=:), allocatable :: name
  character(len=5), parameter :: sites(0:5) = ["alpha", "beta ", "gamma", "alpha", "beta ", "alpha"]
  type(MPI_Comm) :: part
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  number = merge(42, 0, rank == 1)
  call MPI_Bcast(number, 1, MPI_INTEGER, 1, MPI_COMM_WORLD)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call check(number == 42 .and. total == ranks * (ranks - 1) / 2, 1)
  if (command_argument_count() > 0) then
    call check(.not. isthmus_active(), 20)
    call isthmus_levels(MPI_COMM_WORLD%MPI_VAL, levels)
    call isthmus_level_name(MPI_COMM_WORLD%MPI_VAL, 1, name)
    call isthmus_color(MPI_COMM_WORLD%MPI_VAL, rank, 1, color)
    call check(levels == 2 .and. name == "site" .and. color == 0, 21)
    call isthmus_place_name(MPI_COMM_WORLD%MPI_VAL, rank, 1, name)
    call check(name == "", 22)
    call isthmus_comm_split(MPI_COMM_WORLD%MPI_VAL, "isthmus://site", rank, part%MPI_VAL)
    call MPI_Comm_size(part, number)
    call check(number == ranks, 23)
    call isthmus_comm_split(MPI_COMM_WORLD%MPI_VAL, "isthmus://node", rank, part%MPI_VAL)
    call MPI_Comm_size(part, number)
    call check(number == ranks, 24)
    call MPI_Finalize()
    stop
  end if
  call check(isthmus_active(), 2)
  call isthmus_levels(MPI_COMM_WORLD%MPI_VAL, levels, ierror)
  call check(levels == 5 .and. ierror == MPI_SUCCESS, 3)
  call isthmus_level_name(MPI_COMM_WORLD%MPI_VAL, 1, name)
  call check(name == "continent", 4)
  call isthmus_place_name(MPI_COMM_WORLD%MPI_VAL, rank, 3, name)
  call check(name == trim(sites(rank)), 5)
  call isthmus_color(MPI_COMM_WORLD%MPI_VAL, 4, 3, color)
  call check(color == 1, 6)
  call isthmus_group(MPI_COMM_WORLD%MPI_VAL, 5, group, name)
  call check(group == -1 .and. name == "", 7)
  call isthmus_comm_split(MPI_COMM_WORLD%MPI_VAL, "isthmus://site", rank, part%MPI_VAL)
  call MPI_Comm_size(part, number)
  call check(number == count(sites == sites(rank)), 8)
  call MPI_Comm_free(part)
  call MPI_Finalize()
contains
  subroutine check(right, where)
    logical, intent(in) :: right
    integer, intent(in) :: where
    if (right) return
    print *, "usempif08: check", where, "failed at rank", rank
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
