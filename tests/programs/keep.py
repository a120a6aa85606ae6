"""Under `isthmus run --each`: the first node opens connections to the second, one
after another, and keeps them all."""

import os
import socket
import sys
import time

COUNT = 200
PORT = 7000
DEADLINE = 120


def accept():
    listener = socket.create_server(("", PORT), backlog=COUNT)
    listener.settimeout(DEADLINE)
    return [listener.accept() for _ in range(COUNT)]


def connect(host):
    until = time.monotonic() + DEADLINE
    kept = []
    while len(kept) < COUNT:
        try:
            kept.append(socket.create_connection((host, PORT)))
        except ConnectionRefusedError:  # The listener isn't there yet.
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    return kept


if os.environ["ISTHMUS_NODE_RANK"] == "1":
    accept()
else:
    connect(os.environ["ISTHMUS_NODE_LIST"].split(",")[1])
print("kept", COUNT)
sys.exit(0)
