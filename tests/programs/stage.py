"""Shared by programs that hold connections under `isthmus run --each` while a
test takes something away. Files in a directory that test and nodes share mark
the steps."""

import asyncio
import os
import sys

PORT = 7000
directory = sys.argv[1]


async def there(name):
    while not os.path.exists(os.path.join(directory, name)):
        await asyncio.sleep(0.05)


def mark(name):
    open(os.path.join(directory, name), "w").close()


async def serve():
    """Sends back each byte of every connection until all is done."""

    async def echo(reader, writer):
        try:
            while byte := await reader.read(1):
                writer.write(byte)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async with await asyncio.start_server(echo, port=PORT):
        mark("listens")
        await there("done")
