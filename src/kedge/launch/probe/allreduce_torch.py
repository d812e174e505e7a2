# SPDX-License-Identifier: BSD-3-Clause
"""Times allreduce through the image's torch (NCCL or Gloo): started by the image's own Python, and not by kedge.

It must run with any Python since 3.6 and any torch since 1.8. It prints what the probe does, one JSON object per line.
"""

import importlib
import json
import os
import sys
import time


def say(kind, **values):
    """One line in one write."""
    names = {"kedge": kind, "host": os.uname().nodename, "pid": os.getpid(), "task": int(os.environ["RANK"])}
    os.write(1, (json.dumps(dict(names, **values), separators=(",", ":")) + "\n").encode())


def list_sizes(largest):
    """From 8 bytes on, eight times as much each time, up to the largest."""
    sizes = [8]
    while sizes[-1] < largest:
        sizes.append(min(sizes[-1] * 8, largest))
    return sizes


def time_size(torch, size, rounds, device, wait):
    """Seconds of one operation, and how many elements of a last one are wrong."""
    distributed = torch.distributed
    data = torch.zeros(max(size // 4, 1), device=device)
    for _ in range(3):
        distributed.all_reduce(data)
    wait()
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(rounds):
        distributed.all_reduce(data)
    wait()
    seconds = torch.tensor([(time.perf_counter() - begin) / rounds], device=device)
    distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
    count = distributed.get_world_size()
    data.fill_(distributed.get_rank() + 1)
    distributed.all_reduce(data)
    wait()
    return float(seconds[0]), int((data != count * (count + 1) / 2).sum())


def main(backend, largest, rounds):
    """All sizes, on this rank's device."""
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    device, wait, name = torch.device("cpu"), lambda: None, ""
    if backend == "nccl":
        number = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(number)
        device, wait, name = torch.device("cuda", number), torch.cuda.synchronize, torch.cuda.get_device_name(number)
    distributed.init_process_group(backend)
    rank, size = distributed.get_rank(), distributed.get_world_size()
    version = "torch " + torch.__version__
    if backend == "nccl":
        number = torch.cuda.nccl.version()
        version += ", NCCL " + (".".join(map(str, number)) if isinstance(number, tuple) else str(number))
    say("world", rank=rank, size=size, device=name, version=version)
    for each in list_sizes(largest):
        turns = rounds if each <= 65536 else max(rounds // 4, 5)
        seconds, wrong = time_size(torch, each, turns, device, wait)
        if rank == 0:
            say("allreduce", size=size, bytes=max(each // 4, 1) * 4, rounds=turns, seconds=seconds, wrong=wrong)
    distributed.barrier()
    if backend == "gloo":  # its end may wait for a rank that has ended already, without end: torch 2.4, one in twenty
        os._exit(0)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
