"""Under `isthmus run --each`: a cluster of Spark, with its master, a worker and the
driver on the first node and a worker on the second. Records that both have made are
shuffled between them by key; their digests and sums get to the driver."""

import contextlib
import hashlib
import os
import random
import sys
import tempfile
from operator import add

import pyspark
from cluster import DEADLINE_S, end, eventually, listens, running, until_the_end

PORT = 7000
RECORDS, BYTES = 400, 50_000
KEYS, PARTS = 20, 4

# The nodes share a machine with others, on which six Java machines start at once.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextlib.contextmanager
def service(role, *arguments):
    """Without Spark's scripts in `sbin`, whose services go on in the background."""
    spark_class = os.path.join(os.path.dirname(pyspark.__file__), "bin/spark-class")
    with tempfile.TemporaryDirectory() as directory:
        small = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": QUICK_START}
        command = [spark_class, f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
        with running(command, env={**os.environ, **small, "SPARK_WORKER_DIR": directory}):
            yield


def worker(master):
    return service("Worker", "--cores", "1", "--memory", "512m", f"spark://{master}:{PORT}")


def record(number):
    # Spark would compress what repeats.
    return number % KEYS, random.Random(number).randbytes(BYTES + number)


def digests(values):
    """In an order that doesn't depend on that of the values."""
    return sorted(hashlib.sha256(data).hexdigest() for data in values)


def with_maker(records):
    return ((key, (os.environ["ISTHMUS_NODE"], data)) for key, data in records)


def read(groups):
    for key, values in groups:
        makers, data = zip(*values)
        yield key, digests(data), {(maker, os.environ["ISTHMUS_NODE"]) for maker in makers}


def compute(context, nodes):
    records = context.parallelize(range(RECORDS), PARTS).map(record)
    groups = records.mapPartitions(with_maker).groupByKey(PARTS).mapPartitions(read).collect()
    want = {key: [] for key in range(KEYS)}
    for number in range(RECORDS):
        key, data = record(number)
        want[key].append(data)
    assert {key: got for key, got, _ in groups} == {key: digests(data) for key, data in want.items()}
    # Each node has read records of both.
    ways = set().union(*(ways for _, _, ways in groups))
    assert ways == {(maker, reader) for maker in nodes for reader in nodes}, ways

    sums = records.mapValues(len).reduceByKey(add, PARTS).collectAsMap()
    assert sums == {key: sum(map(len, data)) for key, data in want.items()}, sums
    print(f"{RECORDS} records of {len(nodes)} executors are right")


def drive(nodes):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Both executors get work from the beginning, wherever the data are.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{DEADLINE_S}s",
        "spark.locality.wait": "0",
    }
    configuration = pyspark.SparkConf().setAll(settings.items())
    with pyspark.SparkContext(f"spark://{nodes[0]}:{PORT}", "test", conf=configuration) as context:
        compute(context, nodes)


def lead(here, there):
    with service("Master", "--port", str(PORT)):
        # A worker that finds no master waits for some 10 s.
        eventually(lambda: listens(here, PORT))
        with worker(here):
            drive([here, there])
            end(there)


def follow(here, there):
    eventually(lambda: listens(here, PORT))
    with worker(here):
        until_the_end(there)


if __name__ == "__main__":
    work = follow if os.environ["ISTHMUS_NODE_RANK"] == "1" else lead
    work(*os.environ["ISTHMUS_NODE_LIST"].split(","))
