"""Connects to NODE PORT, blocking or not, and prints the errno's name."""

import errno
import select
import socket
import sys

mode, node, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = socket.socket()
connection.setblocking(mode == "blocking")
result = connection.connect_ex((node, port))
if mode == "non-blocking" and result == errno.EINPROGRESS:
    poller = select.poll()
    poller.register(connection, select.POLLOUT)
    # Guards against hanging only.
    if not poller.poll(100_000):
        sys.exit("still pending after 100 s")
    result = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print(errno.errorcode.get(result, "connected" if result == 0 else result))
