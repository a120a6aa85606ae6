#!/usr/bin/env python3
"""Prints, in hex, every preamble that comes to port 7730 of this node in the
clear: the first bytes of a TCP segment's data."""
import socket
import struct

sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
print("recording", flush=True)
while True:
    packet = sniffer.recv(65536)
    tcp = packet[(packet[0] & 15) * 4 :]
    if packet[9] == 6 and struct.unpack("!H", tcp[2:4])[0] == 7730:
        data = tcp[(tcp[12] >> 4) * 4 :]
        if data[:4] == b"ISTH":
            print(data[:88].hex(), flush=True)
