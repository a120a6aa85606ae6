"""How long connect() takes.

connect.py              under `isthmus run --each` on two nodes: from the first to
                        the second, for the first connection of the job and
                        (median of) the next ones
connect.py HOST PORT    to whoever listens there (median of some)

Prints one line of JSON."""

import json
import os
import socket
import statistics
import sys
import time

PORT = 7000
NEXT = 5
DEADLINE_SECONDS = 30


def serve():
    listener = socket.create_server(("", PORT), backlog=64)
    listener.settimeout(DEADLINE_SECONDS)
    for _ in range(NEXT + 1):
        listener.accept()[0].recv(1)


def connect(address):
    began = time.monotonic()
    connection = socket.create_connection(address, DEADLINE_SECONDS)
    took = time.monotonic() - began
    connection.close()
    return took * 1e3


def some(address):
    return statistics.median(connect(address) for _ in range(NEXT))


def measure(other):
    # A refused connection would be the first one: the other side starts before.
    time.sleep(1)
    first = connect((other, PORT))
    return {"first_ms": first, "next_ms": some((other, PORT))}


if len(sys.argv) == 3:
    print(json.dumps({"plain_ms": some((sys.argv[1], int(sys.argv[2])))}), flush=True)
elif os.environ["ISTHMUS_NODE_RANK"] == "0":
    print(json.dumps(measure(os.environ["ISTHMUS_NODE_LIST"].split(",")[1])), flush=True)
else:
    serve()
