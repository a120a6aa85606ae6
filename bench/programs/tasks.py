#!/usr/bin/env python3
"""Many small tasks over two sites, by a pool of isthmus, by mpi4py.futures, and by Dask. The first process
prints how long the tasks took, once all workers have run some.

    mpiexec -n 9 python tasks.py pool TASKS SECONDS BYTES WORKERS
    mpiexec -n 9 python -m mpi4py.futures tasks.py futures TASKS SECONDS BYTES WORKERS
    isthmus run --each -- python3 tasks.py dask TASKS SECONDS BYTES WORKERS
"""

import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))

PORT = 7000
DEADLINE_S = 3600


def work(seconds, data):
    """A task: takes so long, and returns as many bytes as it got."""
    time.sleep(seconds)
    return data


def arguments(number, seconds, size):
    # Of each task other ones, so that nothing is sent once for many.
    return seconds, number.to_bytes(8, "big") + bytes(size - 8)


def report(run, tasks, seconds, size, workers):
    """Times `run`, which maps `work` over lists of its arguments."""
    warm = [arguments(number, 0.05, size) for number in range(4 * workers)]
    calls = [arguments(number, seconds, size) for number in range(tasks)]
    run(warm)
    begin = time.monotonic()
    results = run(calls)
    took = time.monotonic() - begin
    assert results == [data for _, data in calls], "a result is wrong"
    print(json.dumps({"seconds": took}), flush=True)


def executor(pool, *numbers):
    report(lambda calls: list(pool.map(work, *zip(*calls))), *numbers)


def pool(*numbers):
    from isthmus_pool import Pool

    with Pool(progress=False) as pool:
        while pool.num_workers < numbers[-1]:
            time.sleep(0.05)
        executor(pool, *numbers)


def futures(*numbers):
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        pool.bootup(wait=True)
        executor(pool, *numbers)


def dask(tasks, seconds, size, workers):
    import asyncio

    from distributed import Client, Nanny, Scheduler, Worker

    nodes = os.environ["ISTHMUS_NODE_LIST"].split(",")
    address = f"tcp://{nodes[0]}:{PORT}"

    async def follow(directory):
        async with Worker(address, nthreads=1, local_directory=directory) as worker:
            await worker.finished()

    async def lead(directory):
        async with Scheduler(port=PORT, dashboard=False):
            # A worker in a process of its own, and the client in a thread.
            async with Nanny(address, nthreads=1, local_directory=directory):
                await asyncio.to_thread(client)

    def client():
        with Client(address) as client:
            client.wait_for_workers(workers)

            def run(calls):
                return client.gather(client.map(work, *zip(*calls), pure=False))

            report(run, tasks, seconds, size, workers)
            client.shutdown()

    is_first = os.environ["ISTHMUS_NODE_RANK"] == "0"
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(asyncio.wait_for((lead if is_first else follow)(directory), DEADLINE_S))


def main():
    by, tasks, seconds, size, workers = sys.argv[1:]
    {"pool": pool, "futures": futures, "dask": dask}[by](int(tasks), float(seconds), int(size), int(workers))


if __name__ == "__main__":
    main()
