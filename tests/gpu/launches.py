# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch` and `kedge bench allreduce` on the machine's GPUs: DDP over NCCL, in the container and outside."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STEPS = "300"
REPEATS = 3


def try_launches(trial: Any, binds: list[str]) -> None:
    """PyTorch must be there: `binds` bring it into the image."""
    bring_programs(trial)
    kedge = [trial.python, "-s", str(trial.source / "kedge.py")]
    script = "/opt/trial/train.py"
    outside = [
        trial.python,
        "-s",
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=1",
        str(trial.folder / "train.py"),
        STEPS,
    ]
    ways = {
        "--torchrun": [*kedge, "launch", "--nv", *binds, "--torchrun", str(trial.image), script, STEPS],
        "--ranks": [*kedge, "launch", "--nv", *binds, "--ranks", str(trial.image), trial.python, "-s", script, STEPS],
    }
    rates: dict[str, list[float]] = {name: [] for name in ("outside", *ways)}
    for _ in range(REPEATS):
        for name, words in (("outside", outside), *ways.items()):
            done = trial.run(words)
            answer = done.parse()
            is_right = done.status == 0 and answer.get("size") == 1
            trial.record(f"DDP over NCCL, {name}", is_right, done.show(), done.seconds)
            rates[name].append(float(str(answer.get("steps_per_second", 0))))
    best = {name: statistics.median(found) for name, found in rates.items()}
    for name in ways:
        is_fast = best[name] > 0.97 * best["outside"]
        trial.record(f"DDP, {name}: as fast as outside", is_fast, f"{best[name]} and {best['outside']} steps/s")
    try_allreduce(trial, kedge, binds)
    try_one_gpu_twice(trial, kedge, binds)


def bring_programs(trial: Any) -> None:
    """The training and a `torchrun`, which an image with PyTorch installed has."""
    shutil.copy(HERE / "train.py", trial.image / "opt" / "trial" / "train.py")
    shutil.copy(HERE / "train.py", trial.folder / "train.py")
    starter = trial.image / "usr" / "bin" / "torchrun"
    starter.write_text(f'#!/bin/sh\nexec {trial.python} -s -m torch.distributed.run "$@"\n')
    starter.chmod(0o755)
    script = trial.image / ".singularity.d" / "env" / "20-python.sh"
    script.write_text(f'export PATH="{Path(trial.python).parent}:$PATH"\n')


def try_allreduce(trial: Any, kedge: list[str], binds: list[str]) -> None:
    """NCCL with one rank: it has no link to measure, but must start, add and be named."""
    words = [*kedge, "bench", "allreduce", "--way", "nccl", "--tasks", "1", "--bytes", "256M", "--json"]
    done = trial.run([*words, *binds, str(trial.image)])
    try:
        found = json.loads(done.output[done.output.index("{") :])
    except ValueError:
        found = {}
    report = found.get("report", {})
    is_right = (
        done.status == 0 and report.get("ranks") == 1 and not any(row.get("wrong") for row in report.get("rows", []))
    )
    trial.record(
        "bench allreduce --way nccl", is_right, done.show() if not is_right else json.dumps(report), done.seconds
    )


def try_one_gpu_twice(trial: Any, kedge: list[str], binds: list[str]) -> None:
    """Two ranks that share a GPU, which NCCL refuses: the launch ends, and says why."""
    script = ["sh", "-c", f"LOCAL_RANK=0 exec {trial.python} -s /opt/trial/train.py 1"]
    done = trial.run([*kedge, "launch", "--nv", *binds, "--ranks", "--tasks", "2", str(trial.image), *script])
    is_right = done.status not in (0, -9) and "GPU" in done.errors
    trial.record("two ranks on one GPU: refused by NCCL and explained", is_right, done.errors[-600:], done.seconds)
