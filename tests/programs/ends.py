"""Many short connections between two ranks, ended in every order that two
programs end one in. What was written before an orderly end arrives whole and
is followed by an end of file; a reset comes only where one was meant.

Each rank listens and each connects, so that both directions of connecting are
tried; argument: connections per direction and way to end.
"""

import errno
import os
import random
import select
import socket
import struct
import sys
import threading

COUNT = int(sys.argv[1])
PORT = 4400
NODES = sys.argv[2:4]
RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
LARGEST = 300_000

# What each end does: w writes its data, r reads to the other's end, s shuts its
# own direction down, c closes; l closes with a linger time of 0 (a reset).
WAYS = {
    "initiator writes and closes": ("wc", "rc"),
    "acceptor writes and closes": ("rc", "wc"),
    "initiator ends first": ("wsrc", "rwc"),
    "acceptor ends first": ("rwc", "wsrc"),
    "both write, end and read": ("wsrc", "wsrc"),
    "both close at once": ("c", "c"),
    "initiator closes": ("c", "rc"),
    "acceptor closes": ("rc", "c"),
    "initiator resets": ("l", "rc"),
    "acceptor resets": ("rc", "l"),
}
# Closing before the connection is made: the acceptor may see no connection, or an end
# of file, and never a reset.
GIVEN_UP = "given up while pending"


def data(end, number, way):
    generator = random.Random(f"{end} {number} {way}")
    size = generator.choice([0, 1, 100, 5_000, 70_000, generator.randrange(LARGEST)])
    return generator.randbytes(size)


def read_to_end(connection):
    received = bytearray()
    while chunk := connection.recv(65536):
        received += chunk
    return bytes(received)


def play(connection, steps, own, other, resets):
    """One end's part; returns a failure, or None."""
    for step in steps:
        if step == "w":
            connection.sendall(own)
        elif step == "s":
            connection.shutdown(socket.SHUT_WR)
        elif step == "r":
            try:
                received = read_to_end(connection)
            except ConnectionResetError:
                return None if resets else "reset"
            if resets:
                return "an end of file for a reset"
            if received != other:
                return f"{len(received)} bytes of {len(other)}"
        elif step == "l":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    return None


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.wrong = []

    def add(self, way, problem):
        if problem:
            with self.lock:
                self.wrong.append(f"rank {RANK}: {way}: {problem}")


TALLY = Tally()


def one(connection, end, number, way):
    try:
        connection.settimeout(60)
        steps = WAYS[way]
        writes = ["w" in part for part in steps]
        own, other = (data(which, number, way) if writes[which] else b"" for which in (end, 1 - end))
        TALLY.add(way, play(connection, steps[end], own, other, "l" in steps[1 - end]))
    except OSError as error:
        TALLY.add(way, f"{end}: {error}")


def acceptor(listener, total):
    """The initiator sends the number of the connection first, and gets it back."""
    threads = []
    for _ in range(total):
        connection, _ = listener.accept()
        connection.settimeout(60)
        try:
            header = connection.recv(8, socket.MSG_WAITALL)
        except OSError as error:
            TALLY.add("start", f"acceptor: {error}")
            continue
        number, way = struct.unpack("!II", header)
        connection.sendall(b"!")
        thread = threading.Thread(target=one, args=(connection, 1, number, list(WAYS)[way]))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()


def initiator(number, way):
    connection = connect(PORT)
    connection.sendall(struct.pack("!II", number, list(WAYS).index(way)))
    connection.recv(1)
    one(connection, 0, number, way)


def connect(port):
    for _ in range(3000):
        try:
            return socket.create_connection((NODES[1 - RANK], port), 60)
        except ConnectionRefusedError:
            select.select([], [], [], 0.05)
    raise TimeoutError("no listener")


def give_up(delay):
    """Closes a connection that is still to be made."""
    pending = socket.socket()
    pending.setblocking(False)
    result = pending.connect_ex((NODES[1 - RANK], PORT + 1))
    assert result == errno.EINPROGRESS, errno.errorcode.get(result, result)
    select.select([], [], [], delay)
    pending.close()


def served(listener):
    """Takes connections, given up, until one sends that it is the last."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(60)
        try:
            if read_to_end(connection):
                return
        except OSError as error:
            TALLY.add(GIVEN_UP, error)
        connection.close()


def main():
    listener = socket.create_server(("0.0.0.0", PORT), backlog=128)
    clients = socket.create_server(("0.0.0.0", PORT + 1), backlog=128)
    accepting = [
        threading.Thread(target=acceptor, args=(listener, COUNT * len(WAYS))),
        threading.Thread(target=served, args=(clients,)),
    ]
    for thread in accepting:
        thread.start()
    for number in range(COUNT):
        connecting = [threading.Thread(target=initiator, args=(number, way)) for way in WAYS]
        for thread in connecting:
            thread.start()
        for thread in connecting:
            thread.join()
    # From at once to after the connection stands.
    for number in range(COUNT * 4):
        give_up(number / (COUNT * 4) * 0.05)
    last = connect(PORT + 1)
    last.sendall(b"last")
    last.close()
    for thread in accepting:
        thread.join()
    for line in TALLY.wrong:
        print(line, file=sys.stderr)
    print(f"rank {RANK}: {len(TALLY.wrong)} of {COUNT * (len(WAYS) + 4)} ended wrongly")
    sys.exit(bool(TALLY.wrong))


main()
