"""Under `isthmus run --each` on three nodes: the second holds a connection to each
of the others while the gateway of the third is killed and started again. Prints
what becomes of them."""

import asyncio
import os
import sys

from stage import PORT, mark, serve, there

# Guards against hanging only, seconds.
DEADLINE = 400
# A connection waits for its gateway for longer.
LIMIT = 5


async def connect(node):
    """A connection that answers; waits for the other side's listener."""
    while True:
        try:
            connection = await asyncio.open_connection(node, PORT)
            await answers(connection)
            return connection
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)


async def answers(connection):
    reader, writer = connection
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"


async def talk(open_node, front_node):
    beside, through = await connect(open_node), await connect(front_node)
    mark("ready")
    await there("killed")
    try:
        ended = await through[0].read(1)
        assert ended == b"", ended
        print("over the gateway: ended", flush=True)
    except ConnectionError as error:
        print(f"over the gateway: {error}", flush=True)
    await answers(beside)
    print("end to end: goes on", flush=True)
    try:
        await asyncio.wait_for(asyncio.open_connection(front_node, PORT), LIMIT)
        print("new: connected", flush=True)
    except (OSError, asyncio.TimeoutError) as error:
        print(f"new: {error!r}", flush=True)
    mark("tried")
    await there("back")
    while True:
        try:
            await answers(await asyncio.open_connection(front_node, PORT))
            break
        except OSError:
            await asyncio.sleep(0.2)
    print("again: connected", flush=True)
    await answers(beside)
    mark("done")


async def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    work = talk(nodes[0], nodes[2]) if os.environ["ISTHMUS_NODE_RANK"] == "1" else serve()
    await asyncio.wait_for(work, DEADLINE)


sys.exit(asyncio.run(main()))
