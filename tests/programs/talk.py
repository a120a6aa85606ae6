"""Rank 1 sends a million bytes full of a marker to rank 0 over plain TCP."""

import os
import socket
import sys
import time

marker = sys.argv[1].encode()
SIZE = 1_000_000
PORT = 4321
# Guards against hanging only, seconds.
PATIENCE = 120
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if rank == 0:
    listener = socket.create_server(("0.0.0.0", PORT))
    listener.settimeout(PATIENCE)
    connection, (peer, _) = listener.accept()
    connection.settimeout(PATIENCE)
    received = bytearray()
    while chunk := connection.recv(65536):
        received += chunk
    assert received == (marker * (SIZE // len(marker) + 1))[:SIZE]
    print(f"received {len(received)} bytes from {peer}")
else:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection(("n1.alpha", PORT), PATIENCE)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.sendall((marker * (SIZE // len(marker) + 1))[:SIZE])
    connection.close()
