#!/usr/bin/env python3
"""Listens on PORT of any address, prints "listening", and prints what each
client sends."""
import socket
import sys

listener = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
while True:
    client, peer = listener.accept()
    client.settimeout(10)
    print("client", peer[0], client.recv(100), flush=True)
    client.sendall(b"secret")
    client.close()
