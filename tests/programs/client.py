#!/usr/bin/env python3
"""Connects to ADDRESS PORT, sends a word and prints what comes back; with
"again" as a third argument tries for a while until there is a listener."""
import socket
import sys
import time

# These guard against hanging only, seconds.
ANSWER = 100
until = time.monotonic() + (100 if "again" in sys.argv else 0)
while True:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), ANSWER) as connection:
            connection.settimeout(ANSWER)
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
