#!/usr/bin/env python3
"""Connects to ADDRESS and PORT of this node, and sends WORD. Waits for the answer and
prints it, or with "--leave" or "--reset" closes the connection at once."""
import socket
import struct
import sys

address, port, word = sys.argv[1], int(sys.argv[2]), sys.argv[3]
try:
    client = socket.create_connection((address, port), timeout=10)
    client.sendall(word.encode())
except ConnectionError as error:
    sys.exit(print("failed", error, flush=True))
if sys.argv[4:] == ["--reset"]:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
elif not sys.argv[4:]:
    try:
        print("answer", client.recv(100).decode(), flush=True)
    except OSError as error:
        print("failed", error, flush=True)
client.close()
