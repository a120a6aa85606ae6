#!/usr/bin/env python3
"""A rank that prints much, and ends with the status on its command line.

    mpirun -n N chatter.py bytes COUNT STATUS    any bytes, each rank its own: those that are
                                                 its rank modulo 4; a tenth as many as errors
    mpirun -n N chatter.py lines COUNT STATUS    lines of text
"""
import os
import sys

rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or 0)
what, count, status = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if what == "lines":
    for number in range(count):
        # In one piece: a launcher tags every piece.
        os.write(1, f"line {number} of rank {rank}\n".encode())
        os.write(2, f"problem {number} of rank {rank}\n".encode())
else:

    def noise(length):
        state = rank
        made = bytearray()
        for _ in range(length):
            state = (state * 1103515245 + 12345) % 2**31
            made.append((state >> 16) % 64 * 4 + rank % 4)
        return bytes(made)

    for stream, length in [(sys.stdout, count), (sys.stderr, count // 10)]:
        stream.buffer.write(noise(length))
        stream.buffer.flush()
sys.exit(status)
