"""Under `isthmus run --each`: gRPC between two nodes, over a channel by the
server's name. The first makes 500 calls, then sends a stream of 500 messages and
gets each back as its digest, and at last fetches 20 MB in pieces."""

import hashlib
import os
import threading
from concurrent import futures

import grpc

PORT = 7000
CALLS = 500
PIECES, PIECE = 200, 100_000
DEADLINE_S = 150


def message(number):
    return f"{number} of the messages, ".encode() * (number + 1)


def digest(data):
    return hashlib.sha256(data).digest()


def piece(number):
    return bytes([number]) * PIECE


class Service(grpc.GenericRpcHandler):
    """Without protobuf: messages are bytes."""

    def __init__(self):
        self.ended = threading.Event()

    def service(self, details):
        return {
            "/test/Digest": grpc.unary_unary_rpc_method_handler(lambda data, _: digest(data)),
            "/test/Digests": grpc.stream_stream_rpc_method_handler(lambda stream, _: map(digest, stream)),
            "/test/Fetch": grpc.unary_stream_rpc_method_handler(lambda *_: map(piece, range(PIECES))),
            "/test/End": grpc.unary_unary_rpc_method_handler(self.end),
        }.get(details.method)

    def end(self, _data, context):
        self.ended.set()
        return context.peer().encode()


def serve():
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[service])
    assert server.add_insecure_port(f"[::]:{PORT}") == PORT
    server.start()
    assert service.ended.wait(DEADLINE_S)
    # The call that ends it gets its answer.
    server.stop(5).wait()


def call(peer):
    with grpc.insecure_channel(f"{peer}:{PORT}") as channel:
        # The server isn't there yet.
        options = {"wait_for_ready": True, "timeout": DEADLINE_S}
        one = channel.unary_unary("/test/Digest")
        waiting = [(number, one.future(message(number), **options)) for number in range(CALLS)]
        for number, result in waiting:
            assert result.result() == digest(message(number)), number
        got = list(channel.stream_stream("/test/Digests")(map(message, range(CALLS)), **options))
        assert got == [digest(message(number)) for number in range(CALLS)]
        pieces = list(channel.unary_stream("/test/Fetch")(b"", **options))
        assert pieces == [piece(number) for number in range(PIECES)]
        seen_as = channel.unary_unary("/test/End")(b"", **options).decode()
        print(f"{CALLS} calls, {len(got)} digests, {len(pieces)} pieces are right, as {seen_as}")


def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    if os.environ["ISTHMUS_NODE_RANK"] == "1":
        serve()
    else:
        call(nodes[1])


main()
