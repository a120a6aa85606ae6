#!/usr/bin/env python3
"""Connects to ADDRESS PORT, sends a word and prints what comes back; with
"again" as a third argument tries for some seconds until there is a listener."""
import socket
import sys
import time

until = time.monotonic() + (20 if "again" in sys.argv else 0)
while True:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as connection:
            connection.settimeout(10)
            connection.sendall(b"hello")
            print("got", connection.recv(100))
        break
    except ConnectionRefusedError as error:
        if time.monotonic() > until:
            print("failed", type(error).__name__)
            break
        time.sleep(0.1)
    except OSError as error:
        print("failed", type(error).__name__)
        break
