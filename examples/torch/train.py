"""A small data-parallel training over Gloo: each worker takes its share of
every batch, and the gradients are averaged over all workers.

    torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint NODE:29500 train.py

The worker of rank 0 prints the loss after each step. The losses depend on the
data only, not on the number of workers: any number that divides 64 gives the
same, but for rounding.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
STEPS = 20


def check_all_reduce(rank, size):
    """Sums a vector that each worker fills with its own number."""
    vector = torch.full((1000,), float(rank))
    dist.all_reduce(vector)
    expected = size * (size - 1) / 2
    assert torch.all(vector == expected), f"got {vector[0]}, expected {expected}"


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    check_all_reduce(rank, size)

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    inputs = torch.randn(BATCH, 16)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)

    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs[share]), targets[share])
        loss.backward()
        optimizer.step()
        mean = loss.detach() / size
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item():.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
