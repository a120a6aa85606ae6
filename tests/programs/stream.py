"""Under `isthmus run --each` on two nodes: one connection, both ways at once. Every byte is
checked.

    stream.py DIRECTORY

In DIRECTORY each node writes how many bytes have come (`progress.RANK`), and at the end how
many it sent and received (`done.RANK`). Once there is a file `end`, both end their direction.
"""

import hashlib
import os
import socket
import sys
import threading
import time

PORT = 7000
BLOCK = 64 << 10
# A line of the progress at most so often, seconds.
PROGRESS = 0.02
PATIENCE = 120
# The receiver is slower than the network, so that data waits all along the way, and other
# tests get their share of the machine.
PIECE = 256 << 10
PAUSE = 0.01

directory = sys.argv[1]
rank = int(os.environ["ISTHMUS_NODE_RANK"])


def path(name):
    return os.path.join(directory, name)


def block(sender, number):
    """Bytes that no other place of either direction has. Some blocks are small messages."""
    length = BLOCK if number % 50 < 40 else 100 + number % 100
    return hashlib.shake_128(f"{sender} {number}".encode()).digest(length)


def connected():
    if rank == 0:
        with socket.create_server(("0.0.0.0", PORT)) as listener:
            listener.settimeout(PATIENCE)
            connection = listener.accept()[0]
    else:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = socket.create_connection((sys.argv[2], PORT), PATIENCE)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    connection.settimeout(PATIENCE)
    return connection


def send(connection, sums):
    number = 0
    while not os.path.exists(path("end")):
        data = block(rank, number)
        connection.sendall(data)
        sums["sent"] += len(data)
        number += 1
    connection.shutdown(socket.SHUT_WR)


def receive(connection, sums):
    number, want, told = 0, b"", 0.0
    with open(path(f"progress.{rank}"), "w", buffering=1, encoding="ascii") as progress:
        while data := connection.recv(PIECE):
            time.sleep(PAUSE)
            sums["received"] += len(data)
            while data:
                if not want:
                    want = block(1 - rank, number)
                    number += 1
                length = min(len(want), len(data))
                if data[:length] != want[:length]:
                    raise SystemExit(f"wrong bytes in block {number - 1}")
                want, data = want[length:], data[length:]
            if time.time() > told + PROGRESS:
                told = time.time()
                progress.write(f"{sums['received']}\n")
    if want:
        raise SystemExit(f"block {number - 1} ends too early")


sums = {"sent": 0, "received": 0}
connection = connected()
sending = threading.Thread(target=send, args=(connection, sums), daemon=True)
sending.start()
receive(connection, sums)
sending.join()
with open(path(f"done.{rank}"), "w", encoding="ascii") as done:
    done.write(f"{sums['sent']} {sums['received']}")
