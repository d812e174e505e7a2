#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains ResNet-50 on invented pictures, with the options of NVIDIA's example: how fast, not how well.

Starts alone, under multiproc.py, torchrun or `kedge launch --ranks`. `--data-backend synthetic` is the only one:
pictures are made on the device once, so that no disk and no network is measured.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from resnet import make_resnet50
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PICTURES = 1_281_167  # of ImageNet


def parse_arguments():
    """The options that the tutorial's command uses; those that change nothing here are accepted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", help="directory of pictures; not read")
    parser.add_argument("--data-backend", default="synthetic", help="synthetic")
    parser.add_argument("--raport-file", "--report", default="raport.json", help="report (default: raport.json)")
    parser.add_argument("-j", "--workers", type=int, help="accepted, not used: nothing is loaded")
    parser.add_argument("-p", "--print-freq", type=int, default=10, help="steps between lines (default: 10)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--lr-schedule", choices=("step", "linear", "cosine"), default="cosine")
    parser.add_argument("--warmup", type=int, default=0, help="epochs with a rising learning rate")
    parser.add_argument("--optimizer-batch-size", type=int, default=-1, help="pictures between updates (default: -b)")
    parser.add_argument("-a", "--arch", choices=("resnet50",), default="resnet50")
    parser.add_argument("-c", "--model-config", default="fanin", help="accepted: weights begin as with fanin")
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--momentum", "--mom", type=float, default=0.9)
    parser.add_argument("--weight-decay", "--wd", type=float, default=1e-4)
    parser.add_argument("-b", "--batch-size", type=int, default=256, help="of each process (default: 256)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--prof", type=int, default=-1, help="stop each epoch after this many steps")
    parser.add_argument("--amp", action="store_true", help="multiply in half precision (bfloat16)")
    parser.add_argument("--image-size", type=int, default=224, help="of a picture's edge (default: 224)")
    return parser.parse_args()


def set_up():
    """Join the other processes, if any; returns this process's device."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    if size > 1:
        dist.init_process_group("nccl" if has_gpu else "gloo")
    return device, size


class Schedule:
    """The learning rate of a step."""

    def __init__(self, options, steps):
        self.options, self.steps = options, steps

    def rate(self, epoch, step):
        """Rises during the warm-up, then falls as asked for."""
        options, now = self.options, epoch + step / self.steps
        if now < options.warmup:
            return options.lr * (now + 1 / self.steps) / options.warmup
        part = (now - options.warmup) / max(1e-9, options.epochs - options.warmup)
        if options.lr_schedule == "cosine":
            return options.lr * 0.5 * (1 + math.cos(math.pi * part))
        if options.lr_schedule == "linear":
            return options.lr * (1 - part)
        return options.lr * 0.1 ** int(part * 3)


class Training:
    """Model, pictures and optimizer of this process."""

    def __init__(self, options, device, size):
        self.options, self.device, self.size = options, device, size
        torch.manual_seed(0)
        network = make_resnet50().to(device).to(memory_format=torch.channels_last)
        ids = [device.index] if device.type == "cuda" else None
        self.model = DistributedDataParallel(network, device_ids=ids) if size > 1 else network
        shape = (options.batch_size, 3, options.image_size, options.image_size)
        self.pictures = torch.randn(shape, device=device).contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(1000, (options.batch_size,), device=device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), options.lr, options.momentum, weight_decay=options.weight_decay
        )
        self.judge = nn.CrossEntropyLoss(label_smoothing=options.label_smoothing)
        self.together = max(1, options.optimizer_batch_size // (size * options.batch_size))
        whole = PICTURES // (options.batch_size * size)
        self.steps = min(whole, options.prof) if options.prof > 0 else whole
        self.schedule = Schedule(options, self.steps)

    def take_step(self, epoch, step):
        """One batch; the weights change when enough batches are together."""
        half = torch.autocast(self.device.type, torch.bfloat16) if self.options.amp else contextlib.nullcontext()
        with half:
            loss = self.judge(self.model(self.pictures), self.labels) / self.together
        loss.backward()
        if (step + 1) % self.together == 0:
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate(epoch, step)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.detach() * self.together

    def train(self, epoch):
        """One epoch; returns pictures per second of all processes, without the first steps, and the last loss."""
        warm, rates, started = min(10, self.steps // 3), [], self.now()
        for step in range(self.steps):
            if step == warm:
                began = self.now()
            loss = self.take_step(epoch, step)
            if (step + 1) % self.options.print_freq == 0 or step + 1 == self.steps:
                count = self.options.print_freq if (step + 1) % self.options.print_freq == 0 else None
                self.say(epoch, step, loss.item(), count, started)
                started = self.now()
        rates = (self.steps - warm) * self.options.batch_size * self.size / (self.now() - began)
        return rates, loss.item()

    def say(self, epoch, step, loss, count, started):
        """A line from rank 0."""
        if int(os.environ.get("RANK", "0")):
            return
        line = f"Epoch: {epoch} Iteration: {step + 1}/{self.steps}  train.loss : {loss:.5f}"
        if count:
            line += (
                f"  train.total_ips : {count * self.options.batch_size * self.size / (self.now() - started):.2f} img/s"
            )
        print(line, flush=True)

    def now(self):
        """Seconds, when the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def main():
    """Train, and write the report."""
    options = parse_arguments()
    if options.data_backend != "synthetic":
        sys.exit(f"main.py: --data-backend {options.data_backend} is not part of this example: use synthetic")
    device, size = set_up()
    training = Training(options, device, size)
    results = [training.train(epoch) for epoch in range(options.epochs)]
    if int(os.environ.get("RANK", "0")) == 0:
        rate, loss = results[-1]
        facts = {"images_per_second": rate, "train.loss": loss, "processes": size, "steps": training.steps}
        pathlib.Path(options.raport_file).write_text(json.dumps(facts) + "\n")
        print(f"train.total_ips : {rate:.2f} img/s by {size} processes on {device.type}\nExperiment ended", flush=True)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
