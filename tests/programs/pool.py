"""A pool of workers. Prints what its tasks found, on the master alone.

    pool.py ranks             in an MPI job
    pool.py each DIRECTORY    under `isthmus run --each`: one worker ends in the middle of a task, and
                              others join
"""

import os
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mpi" / "python"))

from isthmus_pool import LostError, Pool  # noqa: E402

TASKS = 400


def say(text):
    print(text, flush=True)


def square(number):
    time.sleep(0.005)
    return number * number, socket.gethostname()


def fail(number):
    return 1 // (number - number)


def vanish_once(mark):
    """Ends the process that runs this first."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "ran again"
    os.kill(os.getpid(), signal.SIGKILL)


def vanish(number):
    os.kill(os.getpid(), signal.SIGKILL)


def doubled(data):
    return data + data


def squares(pool):
    found = list(pool.map(square, range(TASKS)))
    assert [number for number, _ in found] == [number * number for number in range(TASKS)]
    nodes = Counter(node for _, node in found)
    say(f"{TASKS} results of " + " ".join(sorted(nodes)))
    return nodes


def errors(pool):
    try:
        pool.submit(fail, 1).result()
    except ZeroDivisionError as error:
        assert "in fail" in str(error.__cause__), error.__cause__
        say("an error came back")


def main():
    with Pool(flat_below=0, attempts=2) as pool:
        squares(pool)
        errors(pool)
        large = os.urandom(3_000_000)
        assert pool.submit(doubled, large).result() == large + large
        say("large results are the same")
        if sys.argv[1] == "each":
            mark = Path(sys.argv[2]) / "vanished"
            say(pool.submit(vanish_once, str(mark)).result())
            while len(squares(pool)) < 4:
                time.sleep(0.2)
            try:
                pool.submit(vanish, 1).result()
            except LostError as error:
                say(f"given up: {error}")
            squares(pool)
            counts = pool.counts()
            say(f"lost {counts.lost} workers, {counts.workers} are left")
    say("the pool is over")


if __name__ == "__main__":
    main()
