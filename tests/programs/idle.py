"""Under `isthmus run --each` on two nodes: one connection that is idle for long.

    idle.py DIRECTORY NODE

NODE is that of rank 0. Each rank writes `ready.RANK` in DIRECTORY once it is connected.
When there is a file `go`, a byte goes to and fro, and each writes `done.RANK`.
"""

import os
import socket
import sys
import time

PORT = 7010
# Seconds: these guard against hanging only. A byte that is lost is sent again by TCP for a
# quarter of an hour before it gives up.
PATIENCE = 120
ANSWER = 120

directory, head = sys.argv[1:]
rank = int(os.environ["ISTHMUS_NODE_RANK"])

OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
]


def path(name):
    return os.path.join(directory, name)


def write(name):
    with open(path(name), "w", encoding="ascii"):
        pass


def connected():
    if rank == 0:
        with socket.create_server(("0.0.0.0", PORT)) as listener:
            listener.settimeout(PATIENCE)
            return listener.accept()[0]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((head, PORT), PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def options(connection):
    return [connection.getsockopt(*option) for option in OPTIONS]


def expect(connection, want):
    have = options(connection)
    if have != want:
        raise SystemExit(f"the options are {have}, not {want}")


connection = connected()
with socket.socket() as fresh:
    default = options(fresh)
expect(connection, default)
connection.setsockopt(*OPTIONS[1], 300)
connection.setsockopt(*OPTIONS[0], 1)
expect(connection, [1, 300, *default[2:]])
if rank == 0:
    # The other end leaves its own on.
    connection.setsockopt(*OPTIONS[0], 0)
    expect(connection, [0, 300, *default[2:]])
write(f"ready.{rank}")
while not os.path.exists(path("go")):
    time.sleep(0.1)
connection.settimeout(ANSWER)
if rank == 0:
    connection.sendall(b"x")
if connection.recv(1) != b"x":
    raise SystemExit("no byte came")
if rank == 1:
    connection.sendall(b"x")
write(f"done.{rank}")
