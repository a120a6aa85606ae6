"""Under `isthmus run --each`, as root: a server that confines itself as HAProxy, BIND and vsftpd do,
and a client. Once it listens, the server on the first node changes its root directory and gives up
its user; the client on the second one does so before it connects for the second time. Then the
server connects back. Each prints what it has from whom."""

import os
import socket
import sys
import tempfile
import time

PORT = 7000
NOBODY = 65534
# Guards against hanging only.
DEADLINE_S = 150


def confine():
    os.chroot(tempfile.mkdtemp())
    os.chdir("/")
    # What is open stays so; what the shim has open must, too.
    os.closerange(20, 1024)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def listener(port):
    server = socket.create_server(("", port))
    server.settimeout(DEADLINE_S)
    return server


def dial(address, port, blocks=True):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            connection = socket.socket()
            connection.settimeout(None if blocks else DEADLINE_S)
            connection.connect((address, port))
            connection.settimeout(DEADLINE_S)
            return connection
        except ConnectionRefusedError:  # The listener isn't there yet.
            assert time.monotonic() < deadline
            time.sleep(0.1)


def ask(what, connection):
    connection.sendall(b"hi")
    print(f"{what}: {connection.recv(100).decode()}", flush=True)
    connection.close()


def serve(server, peer):
    connection, (address, _) = server.accept()
    assert connection.recv(100) == b"hi"
    named = connection.getpeername()[0]
    print(f"served {'its peer' if address == peer and named == peer else (address, named)}", flush=True)
    connection.sendall(b"welcome")
    connection.close()


def main():
    first, second = (socket.gethostbyname(name) for name in os.environ["ISTHMUS_NODE_LIST"].split(","))
    if os.environ["ISTHMUS_NODE_RANK"] == "0":
        server = listener(PORT)
        confine()
        for _ in range(3):
            serve(server, second)
        ask("back", dial(second, PORT))
        # As another user it may have children of its own.
        child = os.fork()
        if child == 0:
            ask("a child", dial(second, PORT, blocks=False))
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    else:
        server = listener(PORT)
        ask("before", dial(first, PORT))
        confine()
        ask("after", dial(first, PORT))
        ask("not waiting", dial(first, PORT, blocks=False))
        for _ in range(2):
            serve(server, first)


main()
