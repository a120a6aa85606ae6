"""Under `isthmus run --each` on two nodes: the second one sends a number every 2 ms, and the first one
checks that none is lost, and measures the longest time in which none comes.

    ticks.py DIRECTORY

The time is measured from when there is a file `watch` in DIRECTORY. Once there is a file `end`, the
numbers end, and the first node prints in milliseconds the longest time without one.
"""

import os
import socket
import struct
import sys
import time

PORT = 7000
PAUSE = 0.002
PATIENCE = 120
NUMBER = struct.Struct("!Q")

directory = sys.argv[1]


def is_there(name):
    return os.path.exists(os.path.join(directory, name))


def receive():
    with socket.create_server(("0.0.0.0", PORT)) as listener:
        listener.settimeout(PATIENCE)
        connection = listener.accept()[0]
    connection.settimeout(PATIENCE)
    expected, held, longest, last = 0, b"", 0.0, None
    while data := connection.recv(1 << 16):
        now = time.monotonic()
        if last is not None:
            longest = max(longest, now - last)
        if last is not None or is_there("watch"):
            last = now
        held += data
        for (number,) in NUMBER.iter_unpack(held[: len(held) // NUMBER.size * NUMBER.size]):
            if number != expected:
                raise SystemExit(f"{number} has come in place of {expected}")
            expected += 1
        held = held[len(held) // NUMBER.size * NUMBER.size :]
    print(f"longest {longest * 1e3:.1f} ms, {expected} numbers", file=sys.stderr, flush=True)


def send():
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((os.environ["ISTHMUS_HEAD"], PORT), PATIENCE)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    number = 0
    while not is_there("end"):
        connection.sendall(NUMBER.pack(number))
        number += 1
        time.sleep(PAUSE)
    connection.close()


receive() if os.environ["ISTHMUS_NODE_RANK"] == "0" else send()
