# SPDX-License-Identifier: BSD-3-Clause
"""A third vendor of GPUs is a file and a row: with both, flags, plan, other runtimes and doctor know it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from kedge.container.devices import load_vendor
from kedge.container.options import VENDORS, Vendor
from tests.requirements import REPOSITORY

MODULE = """
from kedge.container.devices.driver_report import DriverReport, add_lacks
from kedge.container.devices.gpu_advice import describe_absence
from kedge.container.facts import Additions


def plan_gpus(options, host, image):
    additions = Additions()
    if host.view.kind("/dev/toy0"):
        additions.devices = ["/dev/toy0"]
        additions.variables["TOY_VISIBLE_DEVICES"] = host.environ.get("TOY_VISIBLE_DEVICES", "all")
    else:
        add_lacks(additions, "--toy", examine_driver(host).lacks, is_shim=options.shim)
    return additions


def examine_driver(host):
    if not host.view.kind("/dev/toy0"):
        return DriverReport([describe_absence(host, "Toy", "no /dev/toy0")])
    return DriverReport([], summary="Toy driver 1.0 is loaded", usable=["/dev/toy0"])
"""
ROW = (
    'Vendor("Toy", (Switch("toy", "add Toy GPUs", "TOY"),), Switch("no-toy", "no Toy GPUs", "NO_TOY"), module="toy",'
    ' platform="Toybox", node="/dev/toy0", grant="TOY_VISIBLE_DEVICES", image_variables=("TOY_VERSION",),'
    ' enroot_variables={"TOY_VISIBLE_DEVICES": "all"}, cdi_kind="toy.com/gpu", in_apptainer=False),'
)
TRIAL = """
import json, sys
from pathlib import Path
from kedge.system.views import TableView
from kedge.container.others import RUNTIMES, ForeignImage, plan_foreign, render_table
from kedge.container.flags import parse_words
from kedge.container.devices import plan_devices
from kedge.container.facts import HostFacts, ImageFacts
from kedge.answers.doctor.gpu import check_devices, check_driver
from kedge.answers.doctor.surroundings import Surroundings
from kedge.system.settings import Settings

def parse(*words, **environ):
    return parse_words("exec", [*words, "x.sif", "true"], environ)

tree = {"/dev/toy0": "", "/proc/sys/kernel/hostname": "n1", "/etc/cdi/toy.yaml": "", "/bin/true": ""}
host = HostFacts(view=TableView(tree), environ={"TOY_VISIBLE_DEVICES": "1"})
bare = HostFacts(view=TableView({"/proc/sys/kernel/hostname": "n2"}), environ={})
image = ImageFacts(view=TableView({"/bin/true": ""}), path="x.sif", kind="sif", oci_config=b'["TOY_VERSION=1"]')
asked = parse("--toy")
added = plan_devices(asked, host, image)
(root := Path(sys.argv[1])).mkdir()
(root / "dev").mkdir()
(root / "dev/toy0").touch()
here = Surroundings({}, Settings.load(None, {"HOME": str(root)}), str(root))
argv = {}
for name in RUNTIMES:
    plan = plan_foreign(name, asked, [], ForeignImage("x.sqsh", "squashfs", image), host=host, additions=added)
    argv[name] = (plan.argv, [shown for shown, _ in plan.refused])
print(json.dumps({
    "by variable": [parse(APPTAINER_TOY="1").toy, parse(KEDGE_NO_TOY="1").no_toy, parse("--toy").asks_devices],
    "devices": added.devices, "variables": added.variables,
    "off": plan_devices(parse("--toy", "--no-toy"), host, image).devices,
    "forgotten": plan_devices(parse(), host, image).warnings,
    "missing": plan_devices(asked, bare, image).warnings,
    "other": plan_devices(parse("--nv"), host, image).warnings,
    "runtimes": argv, "table": "`--toy`" in render_table() and "`--no-toy`" in render_table(),
    "doctor": [finding.what for check in (check_driver, check_devices) for finding in check(here)],
    "loaded": [name for name in sys.modules if name.startswith("kedge.container.devices.toy")],
}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("toy")
    shutil.copytree(REPOSITORY / "src/kedge", folder / "kedge", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kedge/container/devices/toy.py").write_text(MODULE)
    table = folder / "kedge/container/options.py"
    text = table.read_text()
    head, tail = text.split("VENDORS = (\n")
    rows, rest = tail.split("\n)\n", 1)
    table.write_text(f"{head}VENDORS = (\n{rows}\n    {ROW}\n)\n{rest}")
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(folder / "root")],
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_gpu_vendors_third_has_flags_and_variables(answers: dict[str, object]) -> None:
    assert answers["by variable"] == [True, True, True]


def test_gpu_vendors_third_is_planned(answers: dict[str, object]) -> None:
    assert answers["devices"] == ["/dev/toy0"]
    assert answers["variables"] == {"TOY_VISIBLE_DEVICES": "1"}
    assert answers["off"] == []


def test_gpu_vendors_third_is_explained(answers: dict[str, object]) -> None:
    assert answers["forgotten"] == [
        "This image is built for Toy GPUs and this process has one: add --toy to see it inside the container."
    ]
    assert answers["missing"] == [
        "--toy: n2 has no Toy GPU (no /dev/toy0). Run it on a node with a GPU, or without --toy."
    ]
    assert answers["other"] == [
        "--nv: n1 has Toy GPUs (/dev/toy0) and no NVIDIA GPU: images for CUDA do not run on them. "
        "Use an image for Toybox, and start it with --toy.",
        *answers["forgotten"],
    ]


def test_gpu_vendors_third_is_known_to_other_runtimes(answers: dict[str, object]) -> None:
    runtimes = answers["runtimes"]
    assert isinstance(runtimes, dict)
    assert answers["table"]
    assert runtimes["apptainer"][1] == runtimes["singularity"][1] == ["--toy"]
    assert "TOY_VISIBLE_DEVICES" in runtimes["enroot"][0]
    assert runtimes["podman"][0][runtimes["podman"][0].index("--device") + 1] == "toy.com/gpu=all"
    assert runtimes["charliecloud"][1] == []


def test_gpu_vendors_third_is_examined_by_doctor(answers: dict[str, object]) -> None:
    assert answers["doctor"] == ["Toy driver 1.0 is loaded", "1 GPU: /dev/toy0"]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_gpu_vendors_modules_keep_the_protocol(vendor: Vendor) -> None:
    module = load_vendor(vendor)
    assert callable(module.plan_gpus)
    assert callable(module.examine_driver)
