# SPDX-License-Identifier: BSD-3-Clause
"""A training with torch's DistributedDataParallel on CPUs: every rank says how many steps an epoch has for it.

Twice the ranks, half the steps. At the end all ranks must have the same model. With `--seconds` every step takes so
long, for who wants to end a rank in the middle.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

# Whose last holder is a thread of Gloo can hang destroy_process_group: it waits for the thread, and the thread for it
KEPT: list[torch.Tensor] = []


def main() -> None:
    """Train, compare, say so."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=0.0)
    options, _ = parser.parse_known_args()  # torch.distributed.launch adds --local-rank
    dist.init_process_group("gloo")
    who = f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.uname().nodename}"
    where = f"node {os.environ['GROUP_RANK']}, local {os.environ['LOCAL_RANK']}"
    say(f"{who}, {where}: {train(options)} steps")
    dist.destroy_process_group()


def train(options: argparse.Namespace) -> int:
    """One epoch; the number of its steps."""
    torch.manual_seed(dist.get_rank())  # different models before, the same one afterwards
    data = TensorDataset(torch.randn(options.items, 16), torch.randn(options.items, 1))
    loader = DataLoader(data, batch_size=options.batch, sampler=DistributedSampler(data))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        steps += 1
        if options.seconds:
            say(f"rank {dist.get_rank()} pid {os.getpid()} step {steps}")
            time.sleep(options.seconds)
    require_same(model)
    return steps


def require_same(model: torch.nn.Module) -> None:
    """All ranks have the same numbers."""
    mine = torch.cat([each.detach().flatten() for each in model.parameters()])
    first = mine.clone()
    KEPT.append(first)
    dist.broadcast(first, 0)
    assert torch.equal(mine, first), "ranks have different models"


def say(line: str) -> None:
    """At once: other ranks write too."""
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
    os._exit(0)  # PyTorch 2.13 aborted once at the end of Python: "terminate called without an active exception"
