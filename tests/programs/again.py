"""Under `isthmus run --each`: the first node connects to the second, and again
each time a line comes into the file it is given; a byte goes there and back on
each connection, and a line "connected N" is printed. The line "end" ends it."""

import os
import socket
import sys
import time

PORT = 7000
# Guards against hanging only.
DEADLINE_S = 600


def accept():
    server = socket.create_server(("", PORT))
    server.settimeout(DEADLINE_S)
    while True:
        connection, _ = server.accept()
        byte = connection.recv(1)
        if byte == b"e":
            return
        connection.sendall(byte)


def connect(host, byte):
    while True:
        try:
            connection = socket.create_connection((host, PORT), DEADLINE_S)
            break
        except ConnectionRefusedError:  # The listener isn't there yet.
            time.sleep(0.1)
    connection.sendall(byte)
    return connection


def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    if os.environ["ISTHMUS_NODE_RANK"] == "1":
        return accept()
    kept = []
    deadline = time.monotonic() + DEADLINE_S
    while True:
        lines = open(sys.argv[1], encoding="ascii").read().splitlines()
        if "end" in lines:
            connect(nodes[1], b"e")
            return
        if len(kept) < len(lines) + 1:
            connection = connect(nodes[1], b"x")
            assert connection.recv(1) == b"x"
            kept.append(connection)
            print(f"connected {len(kept)}", flush=True)
        assert time.monotonic() < deadline
        time.sleep(0.05)


main()
