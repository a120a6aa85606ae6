"""Under `isthmus run --each`: a cluster of Ray, with its head and the driver on the
first node and another node of it on the second. Objects of 4 MB that tasks on the
one have made go to tasks on the other and to the driver, and tasks on both call an
actor on the second."""

import contextlib
import hashlib
import os
import sys
import tempfile

import ray
from cluster import DEADLINE_S, end, eventually, listens, running, until_the_end

PORT = 7000
OBJECTS, BYTES = 10, 4_000_000
CALLS = 50

# The nodes share a machine with others: the memory is the least that Ray takes.
START = ["--block", "--disable-usage-stats", "--num-cpus=1", "--object-store-memory=78643200"]


@contextlib.contextmanager
def node(own, *options):
    # The script `ray` names its Python by the path that it was installed at. Containers have it elsewhere.
    ray_command = [sys.executable, "-m", "ray.scripts.scripts"]
    # Tasks and actors are sent to a node by it.
    resource = f'--resources={{"{own}": 1}}'
    with tempfile.TemporaryDirectory() as directory:
        with running([*ray_command, "start", resource, f"--temp-dir={directory}", *START, *options]):
            yield


def at(node):
    return {"num_cpus": 0, "resources": {node: 0.01}}


def made(number):
    return bytes([number]) * (BYTES + number)


def digest(data):
    return hashlib.sha256(data).hexdigest()


@ray.remote
def make(number):
    return made(number)


@ray.remote
def read(data):
    return digest(data), os.environ["ISTHMUS_NODE"]


@ray.remote
class Sum:
    def __init__(self):
        self.calls, self.total = 0, 0

    def add(self, number):
        self.calls += 1
        self.total += number

    def told(self):
        return self.calls, self.total, os.environ["ISTHMUS_NODE"]


@ray.remote
def add_all(adder, numbers):
    ray.get([adder.add.remote(number) for number in numbers])


def objects(here, there):
    data, digests = [], []
    for number in range(OBJECTS):
        # On the one, and on the other.
        maker, reader = (here, there) if number % 2 else (there, here)
        data.append(make.options(**at(maker)).remote(number))
        digests.append(read.options(**at(reader)).remote(data[-1]))
    for number, got in enumerate(ray.get(digests, timeout=DEADLINE_S)):
        assert got == (digest(made(number)), there if number % 2 else here), (number, got)
    for number, got in enumerate(ray.get(data, timeout=DEADLINE_S)):
        assert got == made(number), number


def actor(here, there):
    adder = Sum.options(**at(there)).remote()
    numbers = range(CALLS)
    ray.get([add_all.options(**at(node)).remote(adder, numbers) for node in (here, there)], timeout=DEADLINE_S)
    got = ray.get(adder.told.remote(), timeout=DEADLINE_S)
    assert got == (2 * CALLS, 2 * sum(numbers), there), got


def lead(here, there):
    with node(here, "--head", f"--port={PORT}", "--include-dashboard=false"):
        eventually(lambda: listens(here, PORT))
        ray.init(address=f"{here}:{PORT}")
        eventually(lambda: there in ray.cluster_resources())
        objects(here, there)
        actor(here, there)
        ray.shutdown()
        end(there)
    print(f"{OBJECTS} objects of the other node and {2 * CALLS} calls of an actor are right")


def follow(here, there):
    eventually(lambda: listens(here, PORT))
    with node(there, f"--address={here}:{PORT}"):
        until_the_end(there)


if __name__ == "__main__":
    work = follow if os.environ["ISTHMUS_NODE_RANK"] == "1" else lead
    work(*os.environ["ISTHMUS_NODE_LIST"].split(","))
