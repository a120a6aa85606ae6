! Where the ranks of an MPI program run, when it runs as a job of isthmus: see isthmus_mpi.h.
! Compile it with the program; there is nothing to link with. Without isthmus, everything is
! one site. Communicators are integers: with mpi_f08, give comm%MPI_VAL. Levels and ranks
! are numbered from 0. Each ierror is optional.
module isthmus_mpi
  use, intrinsic :: iso_c_binding
  use mpi, only: MPI_COMM_TYPE_SHARED, MPI_INFO_NULL
  implicit none
  private
  public :: isthmus_active, isthmus_levels, isthmus_level_name, isthmus_place_name
  public :: isthmus_color, isthmus_group, isthmus_comm_split

  ! Longer than any name, with its terminator.
  integer(c_int), parameter :: name_bytes = 256

  ! The functions of isthmus for Fortran's handles, looked up by name.
  abstract interface
    integer(c_int) function call_active() bind(c)
      import :: c_int
    end function
    integer(c_int) function call_levels(comm) bind(c)
      import :: c_int
      integer(c_int), value :: comm
    end function
    integer(c_int) function call_level_name(comm, level, name, length) bind(c)
      import :: c_int, c_char
      integer(c_int), value :: comm, level, length
      character(kind=c_char), intent(out) :: name(*)
    end function
    integer(c_int) function call_place_name(comm, rank, level, name, length) bind(c)
      import :: c_int, c_char
      integer(c_int), value :: comm, rank, level, length
      character(kind=c_char), intent(out) :: name(*)
    end function
    integer(c_int) function call_color(comm, rank, level, color) bind(c)
      import :: c_int
      integer(c_int), value :: comm, rank, level
      integer(c_int), intent(out) :: color
    end function
    integer(c_int) function call_group(comm, rank, group, name, length) bind(c)
      import :: c_int, c_char
      integer(c_int), value :: comm, rank, length
      integer(c_int), intent(out) :: group
      character(kind=c_char), intent(out) :: name(*)
    end function
    integer(c_int) function call_comm_split(comm, type, key, made) bind(c)
      import :: c_int, c_char
      integer(c_int), value :: comm, key
      character(kind=c_char), intent(in) :: type(*)
      integer(c_int), intent(out) :: made
    end function
  end interface

  interface
    type(c_funptr) function dlsym(handle, name) bind(c)
      import :: c_funptr, c_ptr, c_char
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
    end function
  end interface

contains

  ! A function of isthmus; not associated without it.
  type(c_funptr) function lookup(name)
    character(len=*), intent(in) :: name
    procedure(call_active), pointer :: active
    lookup = dlsym(c_null_ptr, "isthmus_mpi_active" // c_null_char)
    if (.not. c_associated(lookup)) return
    call c_f_procpointer(lookup, active)
    lookup = c_null_funptr
    if (active() /= 0) lookup = dlsym(c_null_ptr, "isthmus_mpi_" // name // c_null_char)
  end function

  subroutine finish(code, ierror)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: ierror
    if (present(ierror)) ierror = code
  end subroutine

  subroutine text(bytes, name)
    character(kind=c_char), intent(in) :: bytes(name_bytes)
    character(len=:), allocatable, intent(out) :: name
    integer :: i
    name = ""
    do i = 1, name_bytes
      if (bytes(i) == c_null_char) exit
      name = name // bytes(i)
    end do
  end subroutine

  ! Whether isthmus takes part.
  logical function isthmus_active()
    isthmus_active = c_associated(lookup("active"))
  end function

  subroutine isthmus_levels(comm, levels, ierror)
    integer, intent(in) :: comm
    integer, intent(out) :: levels
    integer, intent(out), optional :: ierror
    procedure(call_levels), pointer :: run
    type(c_funptr) :: found
    found = lookup("levels_f")
    levels = 2
    if (c_associated(found)) then
      call c_f_procpointer(found, run)
      levels = run(int(comm, c_int))
    end if
    call finish(0_c_int, ierror)
  end subroutine

  subroutine isthmus_level_name(comm, level, name, ierror)
    integer, intent(in) :: comm, level
    character(len=:), allocatable, intent(out) :: name
    integer, intent(out), optional :: ierror
    procedure(call_level_name), pointer :: run
    character(kind=c_char) :: bytes(name_bytes)
    type(c_funptr) :: found
    integer(c_int) :: code
    found = lookup("level_name_f")
    code = 0
    bytes = c_null_char
    if (c_associated(found)) then
      call c_f_procpointer(found, run)
      code = run(int(comm, c_int), int(level, c_int), bytes, name_bytes)
      call text(bytes, name)
    else
      name = merge("grid", "site", level == 0)
    end if
    call finish(code, ierror)
  end subroutine

  subroutine isthmus_place_name(comm, rank, level, name, ierror)
    integer, intent(in) :: comm, rank, level
    character(len=:), allocatable, intent(out) :: name
    integer, intent(out), optional :: ierror
    procedure(call_place_name), pointer :: run
    character(kind=c_char) :: bytes(name_bytes)
    type(c_funptr) :: found
    integer(c_int) :: code
    found = lookup("place_name_f")
    code = 0
    bytes = c_null_char
    if (c_associated(found)) then
      call c_f_procpointer(found, run)
      code = run(int(comm, c_int), int(rank, c_int), int(level, c_int), bytes, name_bytes)
    end if
    call text(bytes, name)
    call finish(code, ierror)
  end subroutine

  subroutine isthmus_color(comm, rank, level, color, ierror)
    integer, intent(in) :: comm, rank, level
    integer, intent(out) :: color
    integer, intent(out), optional :: ierror
    procedure(call_color), pointer :: run
    type(c_funptr) :: found
    integer(c_int) :: code, value
    found = lookup("color_f")
    code = 0
    value = 0
    if (c_associated(found)) then
      call c_f_procpointer(found, run)
      code = run(int(comm, c_int), int(rank, c_int), int(level, c_int), value)
    end if
    color = value
    call finish(code, ierror)
  end subroutine

  subroutine isthmus_group(comm, rank, group, name, ierror)
    integer, intent(in) :: comm, rank
    integer, intent(out) :: group
    character(len=:), allocatable, intent(out) :: name
    integer, intent(out), optional :: ierror
    procedure(call_group), pointer :: run
    character(kind=c_char) :: bytes(name_bytes)
    type(c_funptr) :: found
    integer(c_int) :: code, value
    found = lookup("group_f")
    code = 0
    value = -1
    bytes = c_null_char
    if (c_associated(found)) then
      call c_f_procpointer(found, run)
      code = run(int(comm, c_int), int(rank, c_int), value, bytes, name_bytes)
    end if
    group = value
    call text(bytes, name)
    call finish(code, ierror)
  end subroutine

  ! Collective.
  subroutine isthmus_comm_split(comm, type, key, made, ierror)
    integer, intent(in) :: comm, key
    character(len=*), intent(in) :: type
    integer, intent(out) :: made
    integer, intent(out), optional :: ierror
    external :: MPI_Comm_split, MPI_Comm_split_type
    procedure(call_comm_split), pointer :: run
    type(c_funptr) :: found
    integer(c_int) :: code, value
    integer :: error
    found = lookup("comm_split_f")
    if (c_associated(found)) then
      call c_f_procpointer(found, run)
      code = run(int(comm, c_int), trim(type) // c_null_char, int(key, c_int), value)
      made = value
    else if (type == "isthmus://node") then
      call MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, made, error)
      code = error
    else
      call MPI_Comm_split(comm, 0, key, made, error)
      code = error
    end if
    call finish(code, ierror)
  end subroutine

end module
