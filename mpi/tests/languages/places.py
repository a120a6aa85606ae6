"""mpi4py: collectives, and the module of isthmus. Six ranks, with topologies/levels; given
"away", without the library."""

import sys
from array import array

import isthmus_mpi
from mpi4py import MPI

SITES = ["alpha", "beta", "gamma", "alpha", "beta", "alpha"]
GROUPS = ["red", "red", "blue", "blue", "blue", None]

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
away = "away" in sys.argv[1:]

assert world.bcast({"a": 7} if rank == 1 else None, root=1) == {"a": 7}
number = array("i", [42 if rank == 1 else 0])
world.Bcast(number, root=1)
assert number[0] == 42
assert world.allreduce(rank) == size * (size - 1) // 2
assert world.gather(rank, root=2) == (list(range(size)) if rank == 2 else None)
assert world.allgather("x" * rank) == ["x" * i for i in range(size)]
assert world.scatter([i * i for i in range(size)] if rank == 0 else None) == rank * rank
assert world.alltoall([(rank, to) for to in range(size)]) == [(of, rank) for of in range(size)]
world.Barrier()

assert isthmus_mpi.active() != away
if away:
    assert isthmus_mpi.levels(world) == ["grid", "site"]
    assert isthmus_mpi.colors(world) == [[0, 0]] * size
    assert isthmus_mpi.place(world, rank, "site") == ""
    assert isthmus_mpi.group(world, rank) is None
    assert isthmus_mpi.split(world, "isthmus://site").size == size
else:
    assert isthmus_mpi.levels(world) == ["grid", "continent", "region", "site", "node"]
    assert [colors[3] for colors in isthmus_mpi.colors(world)] == [0, 1, 2, 0, 1, 0]
    assert isthmus_mpi.place(world, rank, "site") == SITES[rank]
    assert isthmus_mpi.place(world, rank, 3) == SITES[rank]
    group = isthmus_mpi.group(world, rank)
    assert (group and group.name) == GROUPS[rank], group
    part = isthmus_mpi.split(world, "isthmus://site", key=-rank)
    assert part.size == SITES.count(SITES[rank])
    part.Free()
    part = isthmus_mpi.split(world, "isthmus://group")
    assert (part == MPI.COMM_NULL) == (GROUPS[rank] is None)
    quiet = world.Dup()
    quiet.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        isthmus_mpi.split(quiet, "isthmus://city")
        raise AssertionError("a type that isn't known")
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_ARG
