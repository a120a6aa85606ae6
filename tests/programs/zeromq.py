"""Under `isthmus run --each`: ZeroMQ between two nodes by their names. The first
asks the second 200 times over one socket (REQ, REP), then over 50 at once; it
pushes 2,000 messages of two parts each (PUSH, PULL), in order; and it gets what
the second publishes (PUB, SUB)."""

import hashlib
import os
import socket

import zmq

ASK, PUSH, PUBLISH = 7000, 7001, 7002
QUESTIONS, SOCKETS, PUSHED = 200, 50, 2000
DEADLINE_MS = 150_000


def parts(number):
    text = f"{number} of the messages, " * (number % 100 + 1)
    return [str(number).encode(), text.encode()]


def answer(question):
    return hashlib.sha256(question).digest()


def serve(context, name):
    ask, pull, publish = (context.socket(kind) for kind in (zmq.REP, zmq.PULL, zmq.XPUB))
    # Names can be connected to, but ZeroMQ binds to addresses only.
    publish.bind(f"tcp://*:{PUBLISH}")
    pull.bind(f"tcp://{socket.gethostbyname(name)}:{PUSH}")
    ask.bind(f"tcp://*:{ASK}")
    for _ in range(QUESTIONS + SOCKETS):
        ask.send(answer(ask.recv()))
    for number in range(PUSHED):
        assert pull.recv_multipart() == parts(number), number
    # The subscription, which must be there first.
    assert publish.recv() == b"\x01news"
    for number in range(PUSHED):
        publish.send_multipart([b"other" if number % 2 else b"news", *parts(number)])
    # Until the subscriber has all.
    assert publish.recv() == b"\x00news"
    print(f"answered {QUESTIONS + SOCKETS}, pulled {PUSHED}")


def asking(context, peer):
    ask = context.socket(zmq.REQ)
    ask.connect(f"tcp://{peer}:{ASK}")
    return ask


def call(context, peer):
    ask = asking(context, peer)
    for number in range(QUESTIONS):
        question = f"question {number}".encode()
        ask.send(question)
        assert ask.recv() == answer(question)
    sockets = [asking(context, peer) for _ in range(SOCKETS)]
    questions = [os.urandom(100_000) for _ in sockets]
    for ask, question in zip(sockets, questions):
        ask.send(question)
    for ask, question in zip(sockets, questions):
        assert ask.recv() == answer(question)

    push = context.socket(zmq.PUSH)
    push.connect(f"tcp://{peer}:{PUSH}")
    for number in range(PUSHED):
        push.send_multipart(parts(number))

    news = context.socket(zmq.SUB)
    news.setsockopt(zmq.SUBSCRIBE, b"news")
    news.connect(f"tcp://{peer}:{PUBLISH}")
    for number in range(0, PUSHED, 2):
        assert news.recv_multipart() == [b"news", *parts(number)], number
    news.setsockopt(zmq.UNSUBSCRIBE, b"news")
    print(f"{QUESTIONS + SOCKETS} answers, {PUSHED // 2} news are right")


def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    with zmq.Context() as context:
        context.setsockopt(zmq.RCVTIMEO, DEADLINE_MS)
        context.setsockopt(zmq.SNDTIMEO, DEADLINE_MS)
        context.setsockopt(zmq.LINGER, 5000)
        # No message of a burst is dropped.
        context.setsockopt(zmq.SNDHWM, 2 * PUSHED)
        context.setsockopt(zmq.RCVHWM, 2 * PUSHED)
        if os.environ["ISTHMUS_NODE_RANK"] == "1":
            serve(context, nodes[1])
        else:
            call(context, nodes[1])
        context.destroy(linger=5000)


main()
