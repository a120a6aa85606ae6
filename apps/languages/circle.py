"""circle with mpi4py: see circle.cpp."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
previous = (world.rank - 1) % world.size
got = world.sendrecv([world.rank] * 1000, dest=(world.rank + 1) % world.size, source=previous)
total = world.allreduce(got[-1], op=MPI.SUM)
right = got[-1] == previous and total == world.size * (world.size - 1) // 2
if world.rank == 0 and right:
    print(" No Errors")
sys.exit(not right)
