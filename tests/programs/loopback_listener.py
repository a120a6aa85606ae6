#!/usr/bin/env python3
"""Listens on PORT of any address, IPv6 included. Connects to itself from a socket that
it closes at once, by each name in the arguments. Prints "listening", and then the
words that it is sent, until one is "end"."""
import socket
import sys

port, names = int(sys.argv[1]), sys.argv[2:]
listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
for name in names:
    client = socket.create_connection((name, port))
    client.sendall(("closed by " + name).encode())
    client.close()
print("listening", flush=True)
word = ""
while word != "end":
    client, _ = listener.accept()
    client.settimeout(10)
    word = client.recv(100).decode()
    print(word, flush=True)
    client.sendall(b"secret")
    client.close()
