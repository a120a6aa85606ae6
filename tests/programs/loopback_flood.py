#!/usr/bin/env python3
"""Fills the queue of each listener at 127.128.0.0/16, without root: connects as often
as the queue is long. Prints "flooded" and how many listeners, and keeps the connections
until its input ends."""
import resource
import socket
import sys

ROOM = 4200
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
listeners = []
for line in open("/proc/net/tcp").readlines()[1:]:
    local, _, state = line.split()[1:4]
    address, port = local.split(":")
    address = bytes.fromhex(address)[::-1]
    if state == "0A" and address[:2] == b"\x7f\x80":
        listeners.append((socket.inet_ntoa(address), int(port, 16)))
kept = []
for listener in listeners:
    for _ in range(min(ROOM, limit // len(listeners) - 10)):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listener)
        kept.append(client)
print("flooded", len(listeners), flush=True)
sys.stdin.read()
