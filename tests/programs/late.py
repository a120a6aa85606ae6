"""Under `isthmus run --each` on two nodes: waits for a file, then one connects to the other.
Writes to standard error what became of that.

    late.py DIRECTORY FIRST_NODE
"""

import errno
import os
import socket
import sys
import time

PORT = 7000
PATIENCE = 350
directory, first = sys.argv[1:]
rank = int(os.environ["ISTHMUS_NODE_RANK"])


def wait_for(name):
    deadline = time.monotonic() + PATIENCE
    while not os.path.exists(os.path.join(directory, name)):
        if time.monotonic() > deadline:
            sys.exit(f"no {name}")
        time.sleep(0.02)


if rank == 0:
    with socket.create_server(("0.0.0.0", PORT)) as listener:
        open(os.path.join(directory, "ready.0"), "w").close()
        listener.settimeout(PATIENCE)
        wait_for("done")
else:
    open(os.path.join(directory, "ready.1"), "w").close()
    wait_for("go")
    try:
        socket.create_connection((first, PORT), PATIENCE).close()
        print("connected", file=sys.stderr)
    except OSError as error:
        print("failed:", errno.errorcode.get(error.errno, error), file=sys.stderr)
    open(os.path.join(directory, "done"), "w").close()
