"""Looks at every packet of this machine until standard input ends, then prints
how many there were, their bytes, and in how many a marker stood."""

import select
import socket
import sys

ETH_P_ALL = 3
marker = sys.argv[1].encode()
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
# Packets are lost where the buffer is short and this program is late. The kernel bounds what
# others than root may have.
SO_RCVBUFFORCE = 33
try:
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
except PermissionError:
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
print("listening", flush=True)
count = size = marked = 0
while True:
    ready, _, _ = select.select([packets, sys.stdin], [], [])
    if packets in ready:
        data = packets.recv(1 << 17)
        count += 1
        size += len(data)
        marked += marker in data
    elif not sys.stdin.buffer.read1(1):
        break
print(count, size, marked)
