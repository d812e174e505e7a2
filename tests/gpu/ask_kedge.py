# SPDX-License-Identifier: BSD-3-Clause
"""What kedge says of this machine and of made-up images on it, as one JSON object, for `run` to compare with the truth.

ask_kedge.py FOLDER CASES: the folder that kedge is imported from; cases as JSON: [{"cuda": …, "capabilities": …}, …];
with "libcuda": "host" a libcuda of the image is never taken, as on GPUs that are not for data centers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    """Print the target, what NVML says, and a verdict for each case."""
    sys.path.insert(0, sys.argv[1])
    from kedge.answers.targets import find_target
    from kedge.base.frozen import as_dict, replace
    from kedge.compat.judge import judge
    from kedge.compat.tables.load import load_tables
    from kedge.compat.traits import Fact, ImageTraits
    from kedge.container.devices.nvidia.libraries import find_libraries
    from kedge.container.facts import gather_host
    from kedge.system.host.gpu_probe import probe_gpus
    from kedge.system.settings import Settings

    environ = dict(os.environ)
    tables = load_tables()
    started = time.perf_counter()
    target = find_target(environ=environ, settings=Settings.load(None, environ), tables=tables)
    seconds = time.perf_counter() - started
    verdicts = []
    for case in json.loads(sys.argv[2]):
        traits = ImageTraits(
            "made-up",
            cuda=Fact(case["cuda"], "test"),
            capabilities=Fact(case["capabilities"], "test"),
            architecture=target.architecture,
        )
        plain = tuple(replace(gpu, takes_forward_compat=False) for gpu in target.gpus)
        meant = replace(target, gpus=plain) if case.get("libcuda") == "host" else target
        verdict = judge(traits, meant, tables)
        verdicts.append({"outcome": verdict.outcome, "runs": verdict.runs, "headline": verdict.headline})
    probe = probe_gpus(10.0, find_libraries(gather_host(environ), "").find("libnvidia-ml"))
    answer = {"target": show(target), "seconds": seconds, "probe": as_dict(probe), "verdicts": verdicts}
    print(json.dumps(answer | {"hidden": show(describe_hidden(tables))}))


def show(target: Any) -> dict[str, Any]:
    """A target as JSON has it; of the processor's features their number."""
    from kedge.base.frozen import as_dict, replace

    return as_dict(replace(target, cpu_features=None)) | {"cpu_features": len(target.cpu_features or ())}


def describe_hidden(tables: Any) -> Any:
    """This machine, were /proc/driver hidden, as sandboxes do it: the driver itself must be asked."""
    from kedge.answers.host_target import describe_host
    from kedge.container.facts import gather_host
    from kedge.system.views import DirectoryView

    class HidingView(DirectoryView):
        def resolve(self, path: str) -> str:
            hidden = ("/proc/driver", "/sys/module/nvidia")
            return "/nonexistent" if path.startswith(hidden) else super().resolve(path)

    host = gather_host(dict(os.environ))
    host.view = HidingView("/")
    return describe_host(host, tables)


if __name__ == "__main__":
    main()
