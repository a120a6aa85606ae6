"""How long connect() takes.

connect.py              under `isthmus run --each` on two nodes: from the first to
                        the second, for the first connection of the job and
                        (median of) the next ones
connect.py HOST PORT    to a listener there (median of some)

--slow FACTOR           the network is so many times slower: waits are as much longer

Prints one line of JSON."""

import argparse
import json
import os
import socket
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--slow", type=int, default=1)
parser.add_argument("address", nargs="*")
arguments = parser.parse_args()

PORT = 7001
NEXT = 5
DEADLINE_SECONDS = 30 * arguments.slow
# Until the other side has started.
HEAD_START_SECONDS = 1 * arguments.slow


def serve():
    listener = socket.create_server(("", PORT), backlog=64)
    listener.settimeout(DEADLINE_SECONDS)
    for _ in range(NEXT + 1):
        listener.accept()[0].recv(1)


def connect(address):
    with socket.socket() as connection:
        connection.settimeout(DEADLINE_SECONDS)
        began = time.monotonic()
        connection.connect(address)
        return (time.monotonic() - began) * 1e3


def some(address):
    return statistics.median(connect(address) for _ in range(NEXT))


def measure(other):
    # A refused connection would be the first one: the other side starts before.
    time.sleep(HEAD_START_SECONDS)
    # Not part of connect(), and the interpreter's own part of it takes milliseconds.
    address = (socket.gethostbyname(other), PORT)
    first = connect(address)
    return {"first_ms": first, "next_ms": some(address)}


if arguments.address:
    host, port = arguments.address
    print(json.dumps({"plain_ms": some((host, int(port)))}), flush=True)
elif os.environ["ISTHMUS_NODE_RANK"] == "0":
    print(json.dumps(measure(os.environ["ISTHMUS_NODE_LIST"].split(",")[1])), flush=True)
else:
    serve()
