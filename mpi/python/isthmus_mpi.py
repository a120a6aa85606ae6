"""Where the ranks of an mpi4py program run, when it runs as a job of isthmus.

Nothing is compiled: the functions are those of isthmus_mpi.h, looked up in the running
process. Without isthmus, everything is one site. `comm` is an intra-communicator of mpi4py.
Levels are the whole job ("grid"), those that the grid's administrator has named, "site" and
"node". Only split() is collective.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from isthmus_pool import Pool
from mpi4py import MPI

__all__ = ["Group", "Pool", "active", "colors", "group", "level_name", "levels", "place", "split"]

# Longer than any name, with its terminator.
_NAME_BYTES = 256
_PREFIX = "isthmus://"
_LEVELS_UNKNOWN = ["grid", "site"]


class Group(NamedTuple):
    """A group of the job's profile: numbers are equal for equal groups on all ranks."""

    number: int
    name: str


def _handle_type() -> Any:
    """MPI_Comm: a pointer in Open MPI and in the standard ABI, an int in MPICH's."""
    return ctypes.c_int if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p


def _handle(comm: MPI.Comm) -> Any:
    return _handle_type().from_address(MPI._addressof(comm))


def _lookup(name: str) -> Any:
    """A function of isthmus in this process, or None."""
    process = ctypes.CDLL(None)
    try:
        # A word is returned; an int is its lower half.
        return process["isthmus_mpi_" + name] if process["isthmus_mpi_active"]() else None
    except AttributeError:
        return None


def _check(code: int) -> None:
    if code != MPI.SUCCESS:
        raise MPI.Exception(code)


def _check_rank(comm: MPI.Comm, rank: int) -> None:
    if not 0 <= rank < comm.Get_size():
        raise MPI.Exception(MPI.ERR_RANK)


def active() -> bool:
    """Whether isthmus takes part."""
    return _lookup("active") is not None


def levels(comm: MPI.Comm) -> list[str]:
    """The names of a communicator's levels, the widest first."""
    call = _lookup("levels")
    if call is None:
        return list(_LEVELS_UNKNOWN)
    return [level_name(comm, level) for level in range(call(_handle(comm)))]


def level_name(comm: MPI.Comm, level: int) -> str:
    """The name of a level."""
    call = _lookup("level_name")
    if call is None:
        return _LEVELS_UNKNOWN[level]
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _check(call(_handle(comm), level, name, _NAME_BYTES))
    return name.value.decode("ascii")


def _level(comm: MPI.Comm, level: int | str) -> int:
    return levels(comm).index(level) if isinstance(level, str) else level


def place(comm: MPI.Comm, rank: int, level: int | str) -> str:
    """The name of the place where a rank is at a level, such as its site's; "" if none."""
    call = _lookup("place_name")
    if call is None:
        _check_rank(comm, rank)
        _level(comm, level)
        return ""
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _check(call(_handle(comm), rank, _level(comm, level), name, _NAME_BYTES))
    return name.value.decode("ascii")


def colors(comm: MPI.Comm) -> list[list[int]]:
    """The numbers of the places of each rank at each level: colors(comm)[rank][level]. They
    are equal if and only if the places are."""
    call = _lookup("color")
    depth = len(levels(comm))
    if call is None:
        return [[0] * depth for _ in range(comm.Get_size())]
    color = ctypes.c_int()
    rows = []
    for rank in range(comm.Get_size()):
        row = []
        for level in range(depth):
            _check(call(_handle(comm), rank, level, ctypes.byref(color)))
            row.append(color.value)
        rows.append(row)
    return rows


def group(comm: MPI.Comm, rank: int) -> Group | None:
    """The group of the job's profile that a rank belongs to."""
    call = _lookup("group")
    if call is None:
        _check_rank(comm, rank)
        return None
    name = ctypes.create_string_buffer(_NAME_BYTES)
    number = ctypes.c_int()
    _check(call(_handle(comm), rank, ctypes.byref(number), name, _NAME_BYTES))
    return Group(number.value, name.value.decode("ascii")) if number.value >= 0 else None


def split(comm: MPI.Comm, resource_type: str, key: int = 0) -> MPI.Intracomm:
    """Splits by "isthmus://site", "isthmus://node", "isthmus://level/NAME" or
    "isthmus://group", in which case ranks without a group get MPI.COMM_NULL. Collective."""
    call = _lookup("comm_split")
    if call is None:
        if not resource_type.startswith(_PREFIX):
            raise MPI.Exception(MPI.ERR_ARG)
        if resource_type == _PREFIX + "node":
            return comm.Split_type(MPI.COMM_TYPE_SHARED, key)
        return comm.Split(0, key)
    made = MPI.Intracomm()
    handle = _handle_type().from_address(MPI._addressof(made))
    _check(call(_handle(comm), resource_type.encode(), key, ctypes.byref(handle)))
    return made
