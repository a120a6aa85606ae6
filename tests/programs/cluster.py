"""What programs share that start a cluster's services on both nodes of a job, with
its head and what uses it on the first."""

import contextlib
import socket
import subprocess
import time

END = 7999
# Guards against hanging only.
DEADLINE_S = 240


def eventually(holds):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.1)


def listens(host, port):
    try:
        socket.create_connection((host, port), DEADLINE_S).close()
    except ConnectionRefusedError:
        return False
    return True


@contextlib.contextmanager
def running(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def until_the_end(own):
    """On the second node: waits until the first calls `end`."""
    with socket.create_server((own, END)) as server:
        server.settimeout(DEADLINE_S)
        server.accept()[0].close()


def end(peer):
    socket.create_connection((peer, END), DEADLINE_S).close()
