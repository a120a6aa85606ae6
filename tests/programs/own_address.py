"""Under `isthmus run --each`: every way by which a process may learn its node's address, one line
each, `WAY: ADDRESSES`, as docs/beyond-mpi.md lists them. Then a server listens on the address that
was found, and another one advertises it; the other node is told it and connects to both."""

import ctypes
import fcntl
import os
import re
import socket
import struct
import subprocess
import time

PORT = 7000
OUTSIDE = ("192.0.2.1", 9)
SIOCGIFCONF = 0x8912
# Of `struct ifreq`, and where it has the address.
ENTRY, ADDRESS = 40, 20
# Guards against hanging only.
DEADLINE_S = 150


def printed(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def addresses(text):
    return [ip for ip in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", text) if not ip.startswith("127.")]


def host_name():
    name = socket.gethostname()
    resolved = socket.getaddrinfo(os.uname().nodename, None, socket.AF_INET)
    return [socket.gethostbyname(name), resolved[0][4][0]] + addresses(printed("hostname", "-i"))


def interfaces():
    room = ctypes.create_string_buffer(16 * ENTRY)
    query = struct.pack("iP", len(room), ctypes.addressof(room))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        length, _ = struct.unpack("iP", fcntl.ioctl(asked, SIOCGIFCONF, query))
    entries = [room.raw[at + ADDRESS : at + ADDRESS + 4] for at in range(0, length, ENTRY)]
    listed = " ".join(socket.inet_ntoa(entry) for entry in entries)
    return addresses(listed) + addresses(printed("hostname", "-I"))


def datagram_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected:
        connected.connect(OUTSIDE)
        return [connected.getsockname()[0]]


def connection():
    with socket.socket() as connecting:
        connecting.setblocking(False)
        connecting.connect_ex(OUTSIDE)
        return [connecting.getsockname()[0]]


def number_of_the_host():
    """The bytes of the address, but for which half is which (gethostid(3))."""
    number = ctypes.CDLL(None).gethostid() & 0xFFFFFFFF
    return [socket.inet_ntoa(struct.pack("<I", (number << 16 | number >> 16) & 0xFFFFFFFF))]


def netlink():
    route = printed("ip", "route", "get", OUTSIDE[0])
    listed = re.findall(r"inet ([\d.]+)", printed("ip", "-4", "address", "show"))
    return addresses(" ".join(listed)) + re.findall(r"src ([\d.]+)", route)


def proc_net():
    with open("/proc/net/fib_trie", encoding="ascii") as file:
        lines = file.read().splitlines()
    pairs = zip(lines, lines[1:])
    return addresses(" ".join(line for line, after in pairs if "/32 host LOCAL" in after))


def listener():
    with socket.create_server((datagram_socket()[0], 0)) as server:
        return [server.getsockname()[0]]


WAYS = {
    "host name": host_name,
    "interfaces": interfaces,
    "datagram socket": datagram_socket,
    "connection": connection,
    "number of the host": number_of_the_host,
    "netlink": netlink,
    "`/proc/net`": proc_net,
    "listener": listener,
}


def dial(host, port):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return socket.create_connection((host, port), DEADLINE_S)
        except ConnectionRefusedError:  # The listener isn't there yet.
            assert time.monotonic() < deadline
            time.sleep(0.1)


def serve():
    own = datagram_socket()[0]
    with socket.create_server((own, PORT)) as at_own, socket.create_server(("", PORT + 1)) as anywhere:
        with socket.create_server(("", PORT + 2)) as told:
            for server in at_own, anywhere, told:
                server.settimeout(DEADLINE_S)
            connection, _ = told.accept()
            connection.sendall(own.encode())
            connection.close()
        for server in at_own, anywhere:
            connection, peer = server.accept()
            print(f"peer: {peer[0]}", flush=True)
            connection.sendall(b"here")
            connection.close()


def call(host):
    with dial(host, PORT + 2) as asked:
        told = asked.recv(100).decode()
    for port in PORT, PORT + 1:
        with dial(told, port) as connected:
            print(f"reached: {connected.recv(100).decode()} at {connected.getpeername()[0]}", flush=True)


def main():
    for way, find in WAYS.items():
        print(f"{way}: {' '.join(find())}", flush=True)
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    if os.environ["ISTHMUS_NODE_RANK"] == "0":
        serve()
    else:
        call(nodes[0])


main()
