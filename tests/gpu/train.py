# SPDX-License-Identifier: BSD-3-Clause
"""A data-parallel training on GPUs over NCCL: says how many steps a second it makes, as one line of JSON per rank."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> int:
    """Train a small transformer-like stack on made-up data; print the rate after a warm-up."""
    import torch
    from torch import distributed, nn

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    distributed.init_process_group("nccl")
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(4096, 4096), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(2048, 4096, device="cuda")
    losses = []
    for step in range(steps + 20):
        if step == 20:
            torch.cuda.synchronize()
            began = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    answer = {
        "rank": distributed.get_rank(),
        "size": distributed.get_world_size(),
        "device": torch.cuda.get_device_name(local),
        "nccl": ".".join(str(number) for number in torch.cuda.nccl.version()),
        "torch": torch.__version__,
        "steps_per_second": round(steps / seconds, 2),
        "first_loss": round(float(losses[0]), 4),
        "last_loss": round(float(losses[-1]), 4),
    }
    print(json.dumps(answer), flush=True)
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
