"""Opens many connections to a web server at once, and fetches a file over each
only once all of them are open: fetch.py HOST PORT PATH COUNT SHA256
"""

import asyncio
import hashlib
import sys


async def fetch(host, port, path, all_open, digest):
    reader, writer = await asyncio.open_connection(host, port)
    await all_open.wait()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert hashlib.sha256(body).hexdigest() == digest, f"{len(body)} bytes of something else"


async def main(host, port, path, count, digest):
    all_open = Barrier(count)
    await asyncio.gather(*(fetch(host, port, path, all_open, digest) for _ in range(count)))
    print(f"{count} connections at once, all right")


class Barrier:
    def __init__(self, count):
        self.left = count
        self.open = asyncio.Event()

    async def wait(self):
        self.left -= 1
        if self.left == 0:
            self.open.set()
        await self.open.wait()


if __name__ == "__main__":
    host, port, path, count, digest = sys.argv[1:]
    asyncio.run(asyncio.wait_for(main(host, int(port), path, int(count), digest), 150))
