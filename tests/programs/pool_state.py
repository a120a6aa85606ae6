"""A pool that keeps its results. Ends itself after the first few, unless `goes-on` is said.

    pool_state.py FILE RUNS [goes-on]    RUNS gets a line for each task that begins
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "mpi" / "python"))

from isthmus_pool import Pool  # noqa: E402

TASKS = 50
KEPT = 20
# The task in which it is when it ends.
LAST = 25


def square(number, runs):
    with open(runs, "a") as file:
        file.write(f"{number}\n")
    if number == LAST and "goes-on" not in sys.argv:
        time.sleep(600)
    return number * number


def main():
    state, runs = sys.argv[1:3]
    with Pool(state=state) as pool:
        for number, found in enumerate(pool.map(square, range(TASKS), [runs] * TASKS)):
            assert found == number * number, (number, found)
            if number + 1 == KEPT and "goes-on" not in sys.argv:
                while len(Path(runs).read_text().splitlines()) <= LAST:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
    print(f"{TASKS} results")


if __name__ == "__main__":
    main()
