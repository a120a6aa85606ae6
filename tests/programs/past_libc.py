"""past_libc.py accept|uring: under `isthmus run --each`. `accept`: a server on the first node takes
connections by the C library's accept, which it has looked for in that library itself, as programs
do by ctypes, JNA and P/Invoke; so the preloaded one isn't asked. The other node connects as usual.
`uring`: prints what io_uring_setup says."""

import ctypes
import errno
import os
import socket
import sys
import time

PORT = 7000
CALLS = 2
# Longer than it takes an agent to be sure that nothing fetches the connection.
LASTS_S = 4
SYS_IO_URING_SETUP = 425
# Guards against hanging only.
DEADLINE_S = 150


def serve():
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    with socket.create_server(("", PORT)) as server:
        for _ in range(CALLS):
            accepted = libc.accept(server.fileno(), None, None)
            assert accepted >= 0, os.strerror(ctypes.get_errno())
            with socket.socket(fileno=accepted) as connection:
                connection.settimeout(DEADLINE_S)
                print(f"served {connection.recv(100).decode()}", flush=True)
                connection.sendall(b"welcome")
                time.sleep(LASTS_S)


def call(host):
    deadline = time.monotonic() + DEADLINE_S
    for _ in range(CALLS):
        while True:
            try:
                connection = socket.create_connection((host, PORT), DEADLINE_S)
                break
            except ConnectionRefusedError:  # The listener isn't there yet.
                assert time.monotonic() < deadline
                time.sleep(0.1)
        connection.sendall(b"hi")
        print(f"got {connection.recv(100).decode()}", flush=True)
        connection.close()


def uring():
    by_number = ctypes.CDLL(None, use_errno=True).syscall
    ring = by_number(SYS_IO_URING_SETUP, 8, ctypes.create_string_buffer(120))
    print("io_uring:", "there" if ring >= 0 else errno.errorcode[ctypes.get_errno()], flush=True)


def main():
    if sys.argv[1] == "uring":
        uring()
    elif os.environ["ISTHMUS_NODE_RANK"] == "0":
        serve()
    else:
        call(os.environ["ISTHMUS_HEAD"])


main()
