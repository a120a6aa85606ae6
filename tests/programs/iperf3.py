"""Under `isthmus run --each`: iperf3 measures from the first node to the second,
the same by sendfile, and back, each over 8 connections, by the node's name. At last
it tries UDP, which isn't carried: that ends at once, with an error."""

import json
import os
import subprocess
import time

PORT = "7000"
STREAMS = 8
DEADLINE_S = 120
MEASUREMENTS = [[], ["--zerocopy"], ["--reverse"]]


def iperf3(*arguments):
    command = ["iperf3", "--port", PORT, "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=DEADLINE_S)
    return json.loads(done.stdout)


def measure(peer, *arguments):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        told = iperf3("--client", peer, "--parallel", str(STREAMS), "--time", "1", *arguments)
        # The server isn't there yet, or not again, or hasn't ended the test before.
        error = told.get("error", "")
        is_refused = error.startswith("unable to connect to server") and "refused" in error
        if not is_refused and "busy running a test" not in error:
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.1)


def call(peer):
    for arguments in MEASUREMENTS:
        told = measure(peer, *arguments)
        assert "error" not in told, told["error"]
        assert len(told["end"]["streams"]) == STREAMS, told["end"]
        # iperf3 doesn't wait for what is under way at the end.
        sent, received = (told["end"][f"sum_{what}"]["bytes"] for what in ("sent", "received"))
        assert 1_000_000 < received <= sent, (arguments, received, sent)
    error = measure(peer, "--udp")["error"]
    print(f"{len(MEASUREMENTS)} measurements over {STREAMS} connections; UDP: {error}")


def main():
    if os.environ["ISTHMUS_NODE_RANK"] == "1":
        for _ in [*MEASUREMENTS, "UDP"]:
            iperf3("--server", "--one-off")
    else:
        call(os.environ["ISTHMUS_NODE_LIST"].split(",")[1])


main()
