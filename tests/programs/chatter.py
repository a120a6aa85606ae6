#!/usr/bin/env python3
"""A rank that says much: numbered lines, a long one, bytes that are no text, on
standard output and standard error; ends with the status that is asked for.

    mpirun -n N chatter.py LINES STATUS
"""
import os
import sys

rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK")
lines, status = int(sys.argv[1]), int(sys.argv[2])
for number in range(lines):
    sys.stdout.write(f"rank {rank} line {number}\n")
    if number % 100 == 0:
        sys.stdout.flush()
sys.stdout.write(f"rank {rank} long " + "x" * 100_000 + "\n")
sys.stdout.flush()
sys.stdout.buffer.write(f"rank {rank} bytes ".encode() + bytes(b for b in range(256) if b not in (0, 10)) + b"\n")
sys.stdout.flush()
for number in range(lines // 10):
    sys.stderr.write(f"rank {rank} problem {number}\n")
sys.exit(status)
