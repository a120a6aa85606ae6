"""A service whose members may come and go, each of which connects with all others.

The head (`joins.py head`) takes members on port 7000. It connects back to each, and tells it of those
before, to which the member connects. It ends when the file `end` is in the directory that it is given.
A member ends when the head does.
"""

import os
import socket
import sys
import threading
import time

PORT = 7000


def say(text):
    print(text, flush=True)


def line(stream):
    """Reads a line; None at the end."""
    return stream.readline().strip() or None


def head(directory):
    listener = socket.create_server(("", PORT))
    members = []

    def serve(connection):
        stream = connection.makefile("rw")
        name, port = line(stream).split()
        at = connection.getpeername()[0], int(port)
        with socket.create_connection(at) as back:
            say(f"connected back to {line(back.makefile())} at {at[0]}")
        stream.write(" ".join(f"{ip}:{port}" for ip, port in members) + "\n")
        stream.flush()
        members.append(at)
        # Nothing more comes before the member has gone.
        try:
            line(stream)
        except OSError:
            pass
        members.remove(at)
        say(f"{name} has left")

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    say("serving")
    while not os.path.exists(os.path.join(directory, "end")):
        time.sleep(0.05)


def connected(at):
    """Connects as soon as the head listens."""
    while True:
        try:
            return socket.create_connection(at)
        except ConnectionRefusedError:
            time.sleep(0.05)


def member():
    name = os.environ["ISTHMUS_NODE"]
    listener = socket.create_server(("", 0))

    def greet():
        while True:
            connection, _ = listener.accept()
            connection.sendall(f"{name}\n".encode())
            connection.close()

    threading.Thread(target=greet, daemon=True).start()
    connection = connected((os.environ["ISTHMUS_HEAD"], PORT))
    stream = connection.makefile("rw")
    stream.write(f"{name} {listener.getsockname()[1]}\n")
    stream.flush()
    for other in stream.readline().split():
        ip, port = other.split(":")
        with socket.create_connection((ip, int(port))) as reached:
            say(f"reached {line(reached.makefile())}")
    joined = os.environ.get("ISTHMUS_JOINED", "none")
    say(f"a member, which has joined {joined}")
    line(stream)
    say("the head has ended")


if sys.argv[1] == "head" and os.environ["ISTHMUS_NODE_RANK"] == "0":
    head(sys.argv[2])
else:
    member()
