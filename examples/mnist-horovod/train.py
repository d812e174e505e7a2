#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small network on digits, as Horovod's MNIST examples do: one process per GPU, started by MPI.

The number of steps is divided by the number of processes, and the learning rate multiplied by it. Digits are MNIST's
with `--data DIRECTORY`, else drawn.
"""

import argparse
import pathlib
import time

import torch
from digits import draw_digits, read_mnist
from ranks import join
from torch import nn


def parse_arguments():
    """Few."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIRECTORY", help="of MNIST's four IDX files, gzip or not (default: drawn)")
    parser.add_argument("--steps", type=int, default=20000, help="of all processes together (default: 20000)")
    parser.add_argument("--batch-size", type=int, default=100, help="of each process (default: 100)")
    parser.add_argument("--lr", type=float, default=0.001, help="for one process (default: 0.001)")
    parser.add_argument("--print-freq", type=int, default=10, help="steps between lines (default: 10)")
    return parser.parse_args()


def make_model():
    """Two convolutions and two layers."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def open_digits(folder):
    """What gives a number of digits by a generator, and the digits to judge by."""
    if folder is None:
        return draw_digits, draw_digits(1000, torch.Generator().manual_seed(0)), "1000 new digits"
    pictures, labels = read_mnist(folder, "train")
    judged, truth = read_mnist(folder, "test")

    def draw(count, generator):
        chosen = torch.randint(len(labels), (count,), generator=generator)
        return pictures[chosen] / 255, labels[chosen]

    return draw, (judged / 255, truth), f"{len(truth)} test digits of MNIST"


def train(options, ranks, model, device, draw):
    """This rank's share of the steps."""
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr * ranks.size)
    generator = torch.Generator().manual_seed(1 + ranks.rank)  # other digits on every rank
    started = time.perf_counter()
    for step in range(1, options.steps // ranks.size + 1):
        pictures, labels = draw(options.batch_size, generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures.to(device)), labels.to(device))
        loss.backward()
        ranks.average(model)
        optimizer.step()
        if step % options.print_freq == 0:
            now = time.perf_counter()
            print(f"[{ranks.rank}] loss = {loss.item():.8f}, step = {step} ({now - started:.3f} sec)", flush=True)
            started = now


@torch.no_grad()
def judge(model, device, pictures, labels):
    """The share of right answers."""
    answers = [model(part.to(device)).argmax(1).cpu() for part in pictures.split(1000)]
    return (torch.cat(answers) == labels).float().mean().item()


def main():
    """Join, train, judge, save."""
    options = parse_arguments()
    draw, judged, name = open_digits(options.data)
    ranks = join()
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", ranks.local_rank % gpus) if gpus else torch.device("cpu")
    if ranks.rank == 0:
        print(f"{ranks.size} processes by {ranks.name}, {options.steps // ranks.size} steps each", flush=True)
    model = make_model().to(device)
    ranks.begin(model)
    train(options, ranks, model, device, draw)
    if ranks.rank == 0:
        folder = pathlib.Path("checkpoints")
        folder.mkdir(exist_ok=True)
        torch.save(model.state_dict(), folder / "model.pt")
        print(f"accuracy on {name} = {judge(model, device, *judged):.3f}", flush=True)


if __name__ == "__main__":
    main()
