#!/usr/bin/env python3
"""Two ranks that join past isthmus: by the real address of the node that
listens, given on the command line, and stay joined for some seconds.

    mpirun -n 2 --map-by node past.py ADDRESS PORT

The job's library is not in the way of addresses that aren't virtual; only the
listener must be kept off loopback, which programs over UCX or libfabric are by
their own devices. Here it is a child without the library.
"""
import os
import socket
import subprocess
import sys
import time

rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or 0)
address, port = sys.argv[1], int(sys.argv[2])
if os.environ.get("PAST") or rank == 1:
    if rank == 1 and not os.environ.get("PAST"):
        plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        plain |= {"ISTHMUS_SHIM": "off", "PAST": "1"}
        sys.exit(subprocess.call([sys.executable, *sys.argv], env=plain))
    listener = socket.create_server((address, port))
    client, _ = listener.accept()
    client.recv(1)
else:
    until = time.monotonic() + 100
    while True:
        try:
            connection = socket.create_connection((address, port), 5)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
    # Agents look 5 s after the last connection was set up, and 5 s later again.
    time.sleep(20)
    connection.sendall(b"x")
