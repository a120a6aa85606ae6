"""Under `isthmus run --each` on two nodes: the first holds connections to the
second, over that one's gateways, while one of these is killed. Prints what becomes
of them."""

import asyncio
import os
import sys
import time

from stage import PORT, mark, serve, there

COUNT = 8
# These guard against hanging only, seconds.
DEADLINE = 400
ANSWER = 120


async def answers(connection):
    reader, writer = connection
    writer.write(b"x")
    return await reader.read(1) == b"x"


async def goes_on(connection):
    try:
        return await asyncio.wait_for(answers(connection), ANSWER)
    except (ConnectionError, TimeoutError):
        return False


async def talk(node):
    await there("listens")
    mark("begun")
    await there("back")
    held = [await asyncio.open_connection(node, PORT) for _ in range(COUNT)]
    assert all([await answers(connection) for connection in held])
    mark("ready")
    await there("killed")
    start = time.monotonic()
    new = await asyncio.open_connection(node, PORT)
    assert await answers(new)
    print(f"new: connected after {time.monotonic() - start:.3f} s", flush=True)
    for _ in range(COUNT):
        assert await answers(await asyncio.open_connection(node, PORT))
    print("further: connected", flush=True)
    kept = [await goes_on(connection) for connection in held]
    print(f"kept {kept.count(True)} of {COUNT}", flush=True)
    mark("done")


async def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    work = talk(nodes[1]) if os.environ["ISTHMUS_NODE_RANK"] == "0" else serve()
    await asyncio.wait_for(work, DEADLINE)


sys.exit(asyncio.run(main()))
