"""Under `isthmus run --each` on two nodes: the second one asks the first one, a byte at a time, and waits for
each answer. After so many seconds it is silent for so many (`asks.py ASKS_S SILENT_S`). It prints for how
long it has asked.
"""

import os
import socket
import sys
import time

PORT = 7000
# Guards against hanging only, seconds.
PATIENCE = 120


def answer():
    with socket.create_server(("", PORT)) as listener:
        listener.settimeout(PATIENCE)
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(PATIENCE)
        while question := connection.recv(1):
            connection.sendall(question)


def connected():
    """Connects as soon as the first node listens."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((os.environ["ISTHMUS_HEAD"], PORT), PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def ask(asks, silent):
    with connected() as connection:
        began = time.monotonic()
        while time.monotonic() - began < asks:
            connection.sendall(b"?")
            assert connection.recv(1) == b"?"
        print(f"asked for {time.monotonic() - began:.2f} s", flush=True)
        time.sleep(silent)


if os.environ["ISTHMUS_NODE_RANK"] == "0":
    answer()
else:
    ask(float(sys.argv[1]), float(sys.argv[2]))
