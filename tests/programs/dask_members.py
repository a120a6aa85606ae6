"""Under `isthmus run --each`: Dask, whose workers may come and go.

The head (`dask_members.py head DIRECTORY`) has the scheduler, the client and a worker. It tells of each
other worker that has come, once that has worked, and of each that has left. Those that are there then
share tasks. It ends when the file `end` is in the directory that it is given. A member
(`dask_members.py member`) is one worker.
"""

import asyncio
import os
import sys
import tempfile

from distributed import Client, Scheduler, Worker

PORT = 8786
TASKS = 100
DEADLINE_S = 500


def say(text):
    print(text, flush=True)


def square(number):
    return number * number


def worker(head, directory):
    # Without a host, as for the scheduler: Dask finds this node's address in the grid.
    name = os.environ["ISTHMUS_NODE"]
    return Worker(f"tcp://{head}:{PORT}", name=name, nthreads=1, local_directory=directory)


async def lead(directory, own_directory):
    own = os.environ["ISTHMUS_NODE"]
    async with Scheduler(port=PORT, dashboard=False) as scheduler:
        async with worker(own, own_directory):
            async with Client(f"tcp://{own}:{PORT}", asynchronous=True) as client:
                say("serving")
                known = {own}
                while not os.path.exists(os.path.join(directory, "end")):
                    there = {state.name for state in scheduler.workers.values()}
                    await tell(client, known, there)
                    known = there
                    await asyncio.sleep(0.05)
                # The workers on other nodes end, too.
                await client.shutdown()


async def tell(client, known, there):
    for name in sorted(there - known):
        assert await client.submit(square, 12, workers=[name], pure=False) == 144
        say(f"{name} has come")
    for name in sorted(known - there):
        say(f"{name} has left")
    if there != known:
        squares = await client.gather(client.map(square, range(TASKS), pure=False))
        assert squares == [number * number for number in range(TASKS)], squares
        say(f"{TASKS} squares are right, by {len(there)} workers or fewer")


async def follow(own_directory):
    async with worker(os.environ["ISTHMUS_HEAD"], own_directory) as started:
        await started.finished()


async def main():
    with tempfile.TemporaryDirectory() as own_directory:
        is_head = sys.argv[1] == "head"
        work = lead(sys.argv[2], own_directory) if is_head else follow(own_directory)
        await asyncio.wait_for(work, DEADLINE_S)


if __name__ == "__main__":
    asyncio.run(main())
