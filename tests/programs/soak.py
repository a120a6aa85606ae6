"""Under `isthmus run --each` on two nodes: streams both ways at once, of random lengths
and paces, one after the other. Every byte is checked, and so is the end of each
direction. While they run, a test breaks the network.

    soak.py DIRECTORY SEED

In DIRECTORY each node writes when data came (`progress.RANK`), what was wrong
(`failed.RANK`), and its sums (`done.RANK`). Once there is a file `end`, no stream begins.
"""

import asyncio
import hashlib
import os
import random
import sys
import time

PORT = 7000
STREAMS = 8
BLOCK = 32 << 10
LONGEST = 24  # as a power of two, bytes
# A line of the progress at most so often, seconds.
PROGRESS = 0.02

directory, seed = sys.argv[1], sys.argv[2]
rank = os.environ["ISTHMUS_NODE_RANK"]


def path(name):
    return os.path.join(directory, name)


class Sums:
    """What this node has seen."""

    def __init__(self):
        self.streams = self.sent = self.received = self.refused = 0
        self.told = 0.0
        # Line by line: the test reads it meanwhile.
        self.progress = open(path(f"progress.{rank}"), "w", buffering=1, encoding="ascii")

    def receive(self, count):
        self.received += count
        now = time.time()
        if now > self.told + PROGRESS:
            self.told = now
            self.progress.write(f"{now:.3f} {self.received}\n")


sums = Sums()


def block(stream, direction, number, length):
    """Bytes that no other place of any stream has."""
    return hashlib.shake_128(f"{seed} {stream} {direction} {number}".encode()).digest(length)


def blocks(stream, direction, length):
    for number in range((length + BLOCK - 1) // BLOCK):
        yield block(stream, direction, number, min(BLOCK, length - number * BLOCK))


async def send(writer, stream, direction, length, pause):
    pace = random.Random(f"{stream} {direction}")
    for data in blocks(stream, direction, length):
        writer.write(data)
        await writer.drain()
        sums.sent += len(data)
        if pause:
            await asyncio.sleep(pace.uniform(0, pause))
    writer.write_eof()


async def receive(reader, stream, direction, length):
    where = f"stream {stream}, direction {direction}"
    offset = 0
    for want in blocks(stream, direction, length):
        try:
            data = await reader.readexactly(len(want))
        except asyncio.IncompleteReadError as error:
            at = offset + len(error.partial)
            raise AssertionError(f"{where} ended at {at} of {length} bytes") from error
        if data != want:
            at = next(at for at, (one, other) in enumerate(zip(data, want)) if one != other)
            raise AssertionError(f"{where} has a wrong byte at {offset + at} of {length}")
        offset += len(data)
        sums.receive(len(data))
    if await reader.read(1):
        raise AssertionError(f"{where} goes on behind its {length} bytes")


async def exchange(connection, stream, lengths, pause):
    """Both directions at once; the first is this node's to send."""
    reader, writer = connection
    mine, theirs = ("up", "down") if rank == "0" else ("down", "up")
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(send(writer, stream, mine, lengths[mine], pause))
            both.create_task(receive(reader, stream, theirs, lengths[theirs]))
        sums.streams += 1
    finally:
        writer.close()


def fail(error):
    """Tells the test, and ends the job."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    with open(path(f"failed.{rank}"), "w", encoding="utf-8") as file:
        file.write(f"node {rank}: {type(error).__name__}: {error}\n")
    os._exit(1)


async def connect(node):
    """A connection; what fails before it is made breaks no promise."""
    while True:
        try:
            return await asyncio.open_connection(node, PORT)
        except OSError:
            sums.refused += 1
            await asyncio.sleep(0.2)


async def begin(node, lane):
    """Streams, one after the other."""
    chosen = random.Random(f"{seed} {lane}")
    number = lane
    while not os.path.exists(path("end")):
        lengths = {way: int(2 ** chosen.uniform(0, LONGEST)) for way in ("up", "down")}
        pause = chosen.choice([0, 0.02, 0.1])
        connection = await connect(node)
        connection[1].write(f"{number} {lengths['up']} {lengths['down']} {pause}\n".encode())
        await exchange(connection, number, lengths, pause)
        number += STREAMS


async def answer(reader, writer):
    try:
        line = await reader.readline()
        if not line:
            # A connection whose other end gave up before it was made.
            writer.close()
            return
        number, up, down, pause = line.split()
        lengths = {"up": int(up), "down": int(down)}
        await exchange((reader, writer), int(number), lengths, float(pause))
    except BaseException as error:
        fail(error)


async def main():
    if rank == "0":
        node = os.environ["ISTHMUS_NODE_LIST"].split(",")[1]
        async with asyncio.TaskGroup() as lanes:
            for lane in range(STREAMS):
                lanes.create_task(begin(node, lane))
        with open(path("last"), "w", encoding="ascii") as file:
            file.write("last\n")
    else:
        server = await asyncio.start_server(answer, "0.0.0.0", PORT, limit=BLOCK)
        async with server:
            # What the other node has ended, this one has too, soon.
            while not os.path.exists(path("last")) or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.05)
    with open(path(f"done.{rank}"), "w", encoding="ascii") as file:
        file.write(f"{sums.streams} {sums.sent} {sums.received} {sums.refused}\n")


try:
    asyncio.run(main())
except BaseException as error:
    fail(error)
