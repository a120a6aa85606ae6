"""Under `isthmus run --each`: requests and answers that are written piece by piece, without
TCP_NODELAY. No piece waits until the other kernel acknowledges the one before, which it
delays by 40 ms. The option is seen as it was set."""

import os
import socket
import time

PORT = 7000
REQUESTS = 50
PIECE = 5_000
PIECES = 2
DELAY_S = 0.035
# The kernel doesn't delay the first acknowledgements of a connection.
FIRST = 25
# Of those that follow, about half are prompt at least on a machine that is busy.
PROMPT = 12
# Guards against hanging only.
DEADLINE_S = 120


def expect(connection, count):
    while count > 0:
        data = connection.recv(count)
        assert data, "the other end has closed"
        count -= len(data)


def send_pieces(connection):
    for _ in range(PIECES):
        connection.sendall(b"x" * PIECE)


def no_delay(connection):
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def check_option(connection):
    assert no_delay(connection) == 0
    for value in (1, 0):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, value)
        assert bool(no_delay(connection)) == bool(value), value


def answer():
    with socket.create_server(("", PORT)) as listener:
        connection, _ = listener.accept()
    with connection:
        check_option(connection)
        for _ in range(REQUESTS):
            expect(connection, PIECES * PIECE)
            send_pieces(connection)
        expect(connection, 1)


def connect(peer):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return socket.create_connection((peer, PORT), timeout=DEADLINE_S)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def ask(peer):
    with connect(peer) as connection:
        check_option(connection)
        times = []
        for _ in range(REQUESTS):
            begin = time.monotonic()
            send_pieces(connection)
            expect(connection, PIECES * PIECE)
            times.append(time.monotonic() - begin)
        connection.sendall(b"e")
    # None of them, if pieces wait.
    prompt = sum(seconds < DELAY_S for seconds in times[FIRST:])
    assert prompt >= PROMPT, times
    print("pieces don't wait for each other")


if os.environ["ISTHMUS_NODE_RANK"] == "0":
    ask(os.environ["ISTHMUS_NODE_LIST"].split(",")[1])
else:
    answer()
