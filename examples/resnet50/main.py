#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains ResNet-50 on a directory like ImageNet's or on invented pictures, with the options of NVIDIA's example.

Starts alone, under multiproc.py, torchrun or `kedge launch --ranks`. Writes a report and, of real pictures, a
checkpoint after each epoch, with which `--resume` goes on.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import time

import torch
import torch.distributed as dist
from pictures import BACKENDS, Synthetic, choose_backend, list_classes, list_pictures, make_loader
from resnet import make_resnet50
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = "checkpoint.pth.tar"


def parse_arguments():
    """The options that the tutorial's command uses; those that change nothing here are accepted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", help="directory with train/CLASS/*.JPEG and val/CLASS/*.JPEG")
    parser.add_argument("--data-backend", choices=BACKENDS, help="default: dali-cpu, without a directory synthetic")
    parser.add_argument("--raport-file", "--report", default="raport.json", help="report (default: raport.json)")
    parser.add_argument("-j", "--workers", type=int, default=5, help="that read pictures, of each process (default: 5)")
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
    parser.add_argument("--training-only", action="store_true", help="do not judge by val/ after each epoch")
    parser.add_argument("--no-checkpoints", action="store_true", help="write none")
    parser.add_argument("--workspace", default=".", help=f"directory of the report and of {CHECKPOINT}")
    parser.add_argument("--resume", metavar="FILE", help="go on after the last epoch of this checkpoint")
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
        self.pictures, self.judged = open_pictures(options, device, size)
        network = make_resnet50(self.pictures.classes).to(device).to(memory_format=torch.channels_last)
        ids = [device.index] if device.type == "cuda" else None
        self.model = DistributedDataParallel(network, device_ids=ids) if size > 1 else network
        self.network = network
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), options.lr, options.momentum, weight_decay=options.weight_decay
        )
        self.judge = nn.CrossEntropyLoss(label_smoothing=options.label_smoothing)
        self.together = max(1, options.optimizer_batch_size // (size * options.batch_size))
        self.steps = min(self.pictures.steps, options.prof) if options.prof > 0 else self.pictures.steps
        if not self.steps:
            raise SystemExit(
                f"main.py: too few pictures for one batch of {options.batch_size} in {size} processes: use -b"
            )
        self.schedule = Schedule(options, self.steps)
        torch.manual_seed(1 + read_rank())  # other crops in every process

    def half(self):
        """Half precision where it is asked for."""
        if self.options.amp:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def take_step(self, batch, epoch, step):
        """One batch; the weights change when enough batches are together."""
        pictures, labels = batch
        with self.half():
            loss = self.judge(self.model(pictures), labels) / self.together
        loss.backward()
        if (step + 1) % self.together == 0:
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate(epoch, step)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.detach() * self.together

    def train(self, epoch):
        """One epoch; returns pictures per second of all processes, without the first steps, and the last loss."""
        self.model.train()
        warm, started = min(10, self.steps // 3), self.now()
        for step, batch in zip(range(self.steps), self.pictures.batches(epoch)):
            if step == warm:
                began = self.now()
            loss = self.take_step(batch, epoch, step)
            if (step + 1) % self.options.print_freq == 0 or step + 1 == self.steps:
                count = self.options.print_freq if (step + 1) % self.options.print_freq == 0 else None
                self.say(epoch, step, loss.item(), count, started)
                started = self.now()
        rate = (self.steps - warm) * self.options.batch_size * self.size / (self.now() - began)
        return {"images_per_second": rate, "train.loss": loss.item()}

    @torch.no_grad()
    def validate(self, epoch):
        """How many pictures of val/ the model names right: at once, and among its first five answers."""
        self.network.eval()
        counts = torch.zeros(3, device=self.device, dtype=torch.double)
        for pictures, labels in self.judged.batches(epoch):
            with self.half():
                answers = self.network(pictures).float().topk(min(5, self.pictures.classes)).indices
            right = answers == labels.unsqueeze(1)
            counts += torch.stack((right[:, 0].sum(), right.sum(), torch.tensor(len(labels), device=self.device)))
        if self.size > 1:
            dist.all_reduce(counts)
        first, five, total = counts.tolist()
        if not read_rank():
            print(
                f"Epoch: {epoch}  val.top1 : {100 * first / total:.2f} %  val.top5 : {100 * five / total:.2f} %  "
                f"of {total:.0f} pictures",
                flush=True,
            )
        return {"val.top1": 100 * first / total, "val.top5": 100 * five / total, "val.pictures": int(total)}

    def save(self, epoch):
        """Rank 0's weights and optimizer, under the name only once they are whole."""
        if read_rank():
            return
        path = pathlib.Path(self.options.workspace) / CHECKPOINT
        state = {"epoch": epoch + 1, "classes": self.pictures.classes, "state_dict": self.network.state_dict()}
        torch.save({**state, "optimizer": self.optimizer.state_dict()}, f"{path}.new")
        os.replace(f"{path}.new", path)

    def resume(self):
        """The first epoch; what a checkpoint holds goes into model and optimizer."""
        if not self.options.resume:
            return 0
        state = torch.load(self.options.resume, map_location=self.device, weights_only=True)
        if state["classes"] != self.pictures.classes:
            raise SystemExit(
                f"main.py: {self.options.resume} is of {state['classes']} classes, not {self.pictures.classes}"
            )
        self.network.load_state_dict(state["state_dict"])
        self.optimizer.load_state_dict(state["optimizer"])
        if not read_rank():
            print(f"Resumed {self.options.resume}: epoch {state['epoch']} is next", flush=True)
        return state["epoch"]

    def say(self, epoch, step, loss, count, started):
        """A line from rank 0."""
        if read_rank():
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


def read_rank():
    """The number of this process among all."""
    return int(os.environ.get("RANK", "0"))


def open_pictures(options, device, size):
    """What to train on, and what to judge by after each epoch, if anything."""
    options.data_backend, reason = choose_backend(options.data_backend, options.data)
    if reason and not read_rank():
        print(f"--data-backend {reason}: reading by {options.data_backend} instead", flush=True)
    if options.data_backend == "synthetic":
        return Synthetic(options, device, size), None
    classes = list_classes(options.data)
    loaders = []
    for part in ("train",) if options.training_only else ("train", "val"):
        found = list_pictures(pathlib.Path(options.data) / part, classes)
        if not read_rank():
            print(f"{part}: {len(found)} pictures of {len(classes)} classes, by {options.data_backend}", flush=True)
        loaders.append(make_loader(options, device, (read_rank(), size), found=found, is_training=part == "train"))
        loaders[-1].classes = len(classes)
    return loaders[0], loaders[1] if len(loaders) > 1 else None


def main():
    """Train, and write the report."""
    options = parse_arguments()
    device, size = set_up()
    training = Training(options, device, size)
    facts = {}
    for epoch in range(training.resume(), options.epochs):
        facts = training.train(epoch)
        if training.judged:
            facts.update(training.validate(epoch))
        if options.data_backend != "synthetic" and not options.no_checkpoints:
            training.save(epoch)
    if read_rank() == 0 and facts:
        facts.update(processes=size, steps=training.steps, data_backend=options.data_backend)
        (pathlib.Path(options.workspace) / options.raport_file).write_text(json.dumps(facts) + "\n")
        rate = facts["images_per_second"]
        print(f"train.total_ips : {rate:.2f} img/s by {size} processes on {device.type}", flush=True)
    if read_rank() == 0:
        print("Experiment ended", flush=True)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
