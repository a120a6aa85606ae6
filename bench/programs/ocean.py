"""How long a program that isn't made for wide areas takes to move 64 MB between two nodes.

torchrun … ocean.py allreduce    the sum of a vector over both nodes, by PyTorch's Gloo: each sends
                                 64 MB and receives as much
ocean.py iperf3 RANK HEAD        a stream of iperf3 to the second node, which HEAD names

--slow FACTOR                   the network is so many times slower: waits are as much longer

Rank 0 prints one line of JSON: the seconds."""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import time

parser = argparse.ArgumentParser()
parser.add_argument("--slow", type=int, default=1)
parser.add_argument("what", choices=["allreduce", "iperf3"])
parser.add_argument("rank", type=int, nargs="?", default=int(os.environ.get("RANK", "0")))
parser.add_argument("head", nargs="?")
arguments = parser.parse_args()

BYTES = 64_000_000
TIMES = 2
DEADLINE_SECONDS = 120 * arguments.slow
# Until the other side has started.
HEAD_START_SECONDS = 1 * arguments.slow
PORT = 7001


def all_reduce():
    # Slow to import.
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=DEADLINE_SECONDS))
    vector = torch.ones(BYTES // 4)
    took = []
    for _ in range(TIMES):
        dist.barrier()
        began = time.monotonic()
        dist.all_reduce(vector)
        took.append(time.monotonic() - began)
    assert vector[0] == 2**TIMES and vector[-1] == 2**TIMES, "wrong sum"
    return statistics.median(took)


def iperf3():
    if arguments.rank == 1:
        serve = ["iperf3", "--server", "--one-off", "--port", str(PORT)]
        subprocess.run(serve, check=True, timeout=DEADLINE_SECONDS, stdout=subprocess.DEVNULL)
        return None
    time.sleep(HEAD_START_SECONDS)
    send = ["iperf3", "--client", arguments.head, "--port", str(PORT), "--bytes", str(BYTES), "--json"]
    told = subprocess.run(send, check=True, timeout=DEADLINE_SECONDS, capture_output=True).stdout
    # What the sender has sent may still be under way.
    return BYTES * 8 / json.loads(told)["end"]["sum_received"]["bits_per_second"]


seconds = all_reduce() if arguments.what == "allreduce" else iperf3()
if arguments.rank == 0:
    print(json.dumps({"seconds": seconds}), flush=True)
