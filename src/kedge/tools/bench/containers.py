# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench start` and `kedge bench pull`: how long a container takes to start, and an image to arrive."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.errors import ProgramFailed
from kedge.system.process import run_program
from kedge.system.start_kedge import own_command
from kedge.tools.bench.machine import read_rates
from kedge.tools.bench.record import Figure, Repeats

_OUTSIDE = "the same program outside of containers"


def measure_start(
    image: str, options: Sequence[str], repeats: Repeats, seconds: float, environ: Mapping[str, str]
) -> tuple[Figure, ...]:
    """From `kedge exec IMAGE true` to its end, beside `true` alone."""
    inside = own_command("exec", *options, image, "true")
    outside = _time(["true"], Repeats(repeats.warmup, max(repeats.timed, 5)), seconds, environ)
    floor = sorted(outside)[len(outside) // 2]
    return (Figure("kedge exec", "s", _time(inside, repeats, seconds, environ), floor, _OUTSIDE),)


def _time(command: Sequence[str], repeats: Repeats, seconds: float, environ: Mapping[str, str]) -> tuple[float, ...]:
    found = []
    for _ in range(repeats.warmup + repeats.timed):
        begin = time.perf_counter()
        run_program(command, environment=environ, timeout=seconds, name="kedge exec")
        found.append(time.perf_counter() - begin)
    return tuple(found[repeats.warmup :])


def measure_pull(
    reference: str, repeats: Repeats, seconds: float, environ: Mapping[str, str]
) -> tuple[tuple[Figure, ...], str]:
    """Pulls with an empty cache each time: seconds and MB/s, and the image's digest."""
    times, rates, digest = [], [], ""
    for _ in range(repeats.warmup + repeats.timed):
        with tempfile.TemporaryDirectory(prefix="kedge-bench-") as folder:
            command = own_command("pull", "--json", "--quiet", f"{folder}/image.sif", reference)
            begin = time.perf_counter()
            done = run_program(
                command,
                environment={**environ, "KEDGE_CACHEDIR": f"{folder}/cache"},
                timeout=seconds,
                name="kedge pull",
            )
            times.append(time.perf_counter() - begin)
            size, digest = _read_pulled(done.text, Path(folder, "image.sif"))
            rates.append(size / times[-1] / 1e6)
    limit, name = _find_network(reference, environ)
    return (
        Figure("pull", "s", tuple(times[repeats.warmup :]), None, "unknown: depends on the image and the registry"),
        Figure("download", "MB/s", tuple(rates[repeats.warmup :]), limit, name),
    ), digest


def _read_pulled(text: str, image: Path) -> tuple[int, str]:
    """The bytes that came, or those of the image where it was local; the digest."""
    try:
        pulled = json.loads(text)
        return int(pulled["download"]) or image.stat().st_size, str(pulled["digest"] or "")
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise ProgramFailed("'kedge pull --json' gave an invalid answer") from problem


def _find_network(reference: str, environ: Mapping[str, str]) -> tuple[float | None, str]:
    """MB/s of this host's network; unknown where the registry is this host."""
    rates = read_rates(environ)
    if "//localhost" in reference or "//127." in reference or not rates.ethernet:
        return None, "unknown: rate of the network"
    return rates.ethernet[0] * 125, f"Ethernet ({rates.ethernet[0]:g} Gb/s)"
