"""Under `isthmus run --each` on two nodes: one connection with a known volume.

    volume.py NODE SENT ANSWERED END

NODE is that of rank 0. Rank 1 connects, sends SENT bytes and gets ANSWERED bytes. Then it
ends: it closes the socket ("close"), leaves that to its exit ("exit"), or is killed
("kill").
"""

import os
import signal
import socket
import sys
import time

PORT = 7020
# Seconds: guards against hanging only.
PATIENCE = 120

head, sent, answered, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def connected():
    if os.environ["ISTHMUS_NODE_RANK"] == "0":
        with socket.create_server(("0.0.0.0", PORT)) as listener:
            listener.settimeout(PATIENCE)
            return listener.accept()[0]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((head, PORT), PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(connection, count):
    while count:
        data = connection.recv(min(count, 1 << 16))
        if not data:
            raise SystemExit(f"{count} bytes are missing")
        count -= len(data)


connection = connected()
connection.settimeout(PATIENCE)
if os.environ["ISTHMUS_NODE_RANK"] == "0":
    receive(connection, sent)
    connection.sendall(bytes(answered))
    # Until the other end is gone, by whatever way.
    try:
        connection.recv(1)
    except ConnectionResetError:
        pass
    raise SystemExit
connection.sendall(bytes(sent))
receive(connection, answered)
if end == "close":
    connection.close()
elif end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(0)
