"""Under `isthmus run --each`: Dask's scheduler and client on the first node, a worker
on each. Data that one worker has made goes to the other, and results to the client."""

import asyncio
import hashlib
import os
import tempfile

from distributed import Client, Scheduler, Worker

PORT = 7000
TASKS, BYTES = 40, 500_000
DEADLINE_S = 150


def made(number):
    return bytes([number]) * BYTES


def digest(data):
    return hashlib.sha256(data).hexdigest(), os.environ["ISTHMUS_NODE"]


def worker(nodes, own, directory):
    # Without a host, as for the scheduler: Dask finds this node's address in the grid.
    return Worker(f"tcp://{nodes[0]}:{PORT}", name=own, nthreads=2, local_directory=directory)


async def lead(nodes, directory):
    async with Scheduler(port=PORT, dashboard=False):
        async with worker(nodes, nodes[0], directory):
            async with Client(f"tcp://{nodes[0]}:{PORT}", asynchronous=True) as client:
                await client.wait_for_workers(len(nodes))
                await compute(client, nodes)
                # The worker on the other node ends, too.
                await client.shutdown()


async def compute(client, nodes):
    here, there = nodes
    data, digests = [], []
    for number in range(TASKS):
        # On the one, and on the other.
        maker, reader = (here, there) if number % 2 else (there, here)
        data.append(client.submit(made, number, workers=maker))
        digests.append(client.submit(digest, data[-1], workers=reader))
    for number, got in enumerate(await client.gather(digests)):
        assert got == (digest(made(number))[0], there if number % 2 else here), (number, got)
    assert await client.gather(data, direct=False) == [made(number) for number in range(TASKS)]
    print(f"{TASKS} digests of the other worker's data are right")


async def follow(nodes, directory):
    async with worker(nodes, nodes[1], directory) as started:
        await started.finished()


async def main():
    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    work = follow if os.environ["ISTHMUS_NODE_RANK"] == "1" else lead
    with tempfile.TemporaryDirectory() as directory:
        await asyncio.wait_for(work(nodes, directory), DEADLINE_S)


if __name__ == "__main__":
    asyncio.run(main())
