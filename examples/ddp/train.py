#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains 16 linear layers with PyTorch DDP, and prints how many steps each process takes: more processes, fewer steps.

Starts under torchrun, under `kedge launch --ranks`, or alone. Uses NCCL with GPUs and Gloo without.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

LAYERS = 16
WIDTH = 1864  # 16 layers of it have 55.6 million parameters


class RandomPairs(Dataset):
    """Random inputs and targets: the work of training, without a dataset to download."""

    def __init__(self, size, width):
        generator = torch.Generator().manual_seed(0)  # the same on every rank
        self.inputs = torch.randn(size, width, generator=generator)
        self.targets = torch.randn(size, width, generator=generator)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]

    def __getitems__(self, indices):
        """A whole batch at once."""
        return self.inputs[indices], self.targets[indices]


def parse_arguments():
    """The tutorial's options, and what a small trial changes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=512, help="of each process (default: 512)")
    parser.add_argument("--data_size", type=int, default=131072, help="items (default: 131072)")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of each layer (default: {WIDTH})")
    parser.add_argument("--report", metavar="FILE", help="write times and loss there, as JSON")
    return parser.parse_args()


def set_up():
    """Join the other processes; returns this process's device."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", rank=rank, world_size=size)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    return device


def make_model(width, device):
    """The layers, with equal parameters on every rank."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS))).to(device)
    return DistributedDataParallel(layers, device_ids=[device.index] if device.type == "cuda" else None)


def train_epoch(model, loader, optimizer, device):
    """One pass over this rank's share; returns the number of steps and the last loss."""
    steps = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        steps += 1
    return steps, loss.item()  # item() waits for the GPU


def say(text):
    """One line from rank 0."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def main():
    """Train, and report."""
    arguments = parse_arguments()
    device = set_up()
    model = make_model(arguments.width, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    say("Finished DDP setup")
    data = RandomPairs(arguments.data_size, arguments.width)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, arguments.batch_size, sampler=sampler, collate_fn=lambda batch: batch)
    say(f"Dataset has {len(data)} items")
    name = "GPU" if device.type == "cuda" else "CPU"
    seconds, losses, steps = [], [], 0
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        steps, loss = train_epoch(model, loader, optimizer, device)
        dist.barrier(device_ids=[device.index] if device.type == "cuda" else None)
        seconds.append(time.perf_counter() - started)
        losses.append(loss)
        size = arguments.batch_size
        print(f"[{name}{dist.get_rank()}] Epoch {epoch} | Batchsize: {size} | Steps: {steps}", flush=True)
        say(f"Finished epoch {epoch} in {seconds[-1]:.2f} seconds")
    if arguments.report and dist.get_rank() == 0:
        facts = {"processes": dist.get_world_size(), "steps": steps, "epoch_seconds": seconds, "losses": losses}
        pathlib.Path(arguments.report).write_text(json.dumps(facts) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
