#!/usr/bin/env python3
"""Listens on PORT of any address, says "listening", and prints what each
visitor sends."""
import socket
import sys

listener = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
while True:
    visitor, peer = listener.accept()
    visitor.settimeout(10)
    print("visitor", peer[0], visitor.recv(100), flush=True)
    visitor.sendall(b"secret")
    visitor.close()
