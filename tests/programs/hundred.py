"""Under `isthmus run --each`: the first node opens 100 connections to the
second at once, and a byte goes there and back on each."""

import asyncio
import os
import sys

COUNT = 100
PORT = 7000
# Guards against hanging only, seconds.
DEADLINE = 150


async def accept():
    done = asyncio.Semaphore(0)

    async def echo(reader, writer):
        writer.write(await reader.readexactly(1))
        await writer.drain()
        await reader.read()
        writer.close()
        done.release()

    server = await asyncio.start_server(echo, port=PORT, backlog=COUNT)
    for _ in range(COUNT):
        await done.acquire()
    server.close()


async def connect(host, byte):
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, PORT)
            break
        except ConnectionRefusedError:  # The listener isn't there yet.
            await asyncio.sleep(0.1)
    writer.write(bytes([byte]))
    assert await reader.readexactly(1) == bytes([byte])
    writer.close()


async def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    if os.environ["ISTHMUS_NODE_RANK"] == "1":
        work = accept()
    else:
        work = asyncio.gather(*(connect(nodes[1], byte) for byte in range(COUNT)))
    await asyncio.wait_for(work, DEADLINE)


sys.exit(asyncio.run(main()))
