"""Under `isthmus run --each` on two nodes: how long connect() takes from the
first node to the second, for the first connection of the job and (median of)
the next ones, and over loopback for comparison. Prints one line of JSON."""

import json
import os
import socket
import statistics
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


def measure(other):
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            first = connect((other, PORT))
            break
        except ConnectionRefusedError:  # Nobody listens there yet.
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    rest = [connect((other, PORT)) for _ in range(NEXT)]
    local = socket.create_server(("127.0.0.1", 0), backlog=64)
    plain = [connect(local.getsockname()) for _ in range(NEXT)]
    print(json.dumps({
        "first_ms": first,
        "next_ms": statistics.median(rest),
        "plain_ms": statistics.median(plain),
    }), flush=True)


if os.environ["ISTHMUS_NODE_RANK"] == "0":
    measure(os.environ["ISTHMUS_NODE_LIST"].split(",")[1])
else:
    serve()
