"""Under `isthmus run --each`: a cluster of Ray, with its head and the driver on the first node and a
worker on each other node. Each worker makes objects of 4 MB, and the next worker and the driver read
them."""

import os

import ray
from cluster import DEADLINE_S, end, eventually, listens, until_the_end
from ray_cluster import PORT, at, digest, made, make, node, read

OBJECTS = 3


def exchange(workers):
    data, digests = [], []
    for index, maker in enumerate(workers):
        reader = workers[(index + 1) % len(workers)]
        for number in range(OBJECTS):
            data.append(make.options(**at(maker)).remote(number))
            digests.append(read.options(**at(reader)).remote(data[-1]))
    for position, got in enumerate(ray.get(digests, timeout=DEADLINE_S)):
        index, number = divmod(position, OBJECTS)
        assert got == (digest(made(number)), workers[(index + 1) % len(workers)]), (index, number, got)
    for position, got in enumerate(ray.get(data, timeout=DEADLINE_S)):
        assert got == made(position % OBJECTS), position


def lead(here, workers):
    with node(here, "--head", f"--port={PORT}", "--include-dashboard=false"):
        eventually(lambda: listens(here, PORT))
        ray.init(address=f"{here}:{PORT}")
        eventually(lambda: set(workers) <= set(ray.cluster_resources()))
        exchange(workers)
        ray.shutdown()
        for worker in workers:
            end(worker)
    print(f"{len(workers)} workers have exchanged {len(workers) * OBJECTS} objects")


def follow(head, here):
    eventually(lambda: listens(head, PORT))
    with node(here, f"--address={head}:{PORT}"):
        until_the_end(here)


if __name__ == "__main__":
    head, *workers = os.environ["ISTHMUS_NODE_LIST"].split(",")
    rank = int(os.environ["ISTHMUS_NODE_RANK"])
    if rank == 0:
        lead(head, workers)
    else:
        follow(head, workers[rank - 1])
