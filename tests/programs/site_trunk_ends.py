"""Under `isthmus run --each` on two nodes: the first holds a connection to the second over their
gateways' trunk while a gateway is killed. Once a side of the connection has ended, its file says
how."""

import asyncio
import os
import sys

from stage import PORT, mark

# Guards against hanging only, seconds.
DEADLINE = 300


async def hold(reader, writer):
    """Waits for what becomes of a connection over which nothing is sent."""
    name = os.environ["ISTHMUS_NODE_RANK"]
    mark(f"ready.{name}")
    try:
        ended = "end of file" if await reader.read(1) == b"" else "data"
    except ConnectionError as error:
        ended = str(error)
    half = os.path.join(sys.argv[1], f"half.{name}")
    with open(half, "w") as file:
        file.write(ended)
    # Whoever sees the file sees all of it.
    os.rename(half, os.path.join(sys.argv[1], f"ended.{name}"))
    writer.close()


async def first(node):
    while True:
        try:
            reader, writer = await asyncio.open_connection(node, PORT)
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
    writer.write(b"x")
    await reader.readexactly(1)
    await hold(reader, writer)


async def second():
    done = asyncio.Event()

    async def held(reader, writer):
        writer.write(await reader.readexactly(1))
        await hold(reader, writer)
        done.set()

    async with await asyncio.start_server(held, port=PORT):
        await done.wait()


async def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    work = second() if os.environ["ISTHMUS_NODE_RANK"] == "1" else first(nodes[1])
    await asyncio.wait_for(work, DEADLINE)


sys.exit(asyncio.run(main()))
