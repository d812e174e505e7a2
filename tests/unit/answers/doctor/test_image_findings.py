# SPDX-License-Identifier: BSD-3-Clause
"""One image, judged: verdicts as findings, and the traps that images of its kind are known for."""

from __future__ import annotations

from pathlib import Path

from kedge.answers.doctor.image_check import explain_problem, judge_image
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.targets import find_target
from kedge.base.frozen import replace
from kedge.compat.judge import judge
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Gpu, Target
from kedge.compat.traits import Fact, ImageTraits
from kedge.errors import CorruptImage
from kedge.system.settings import Settings
from tests.builders.rows import each_row

PLAIN = ImageTraits(
    name="a/b:1", framework=Fact("PyTorch"), python=Fact("3.10"), cuda=Fact("12.4.0"), architecture="amd64"
)


def find(findings: list[Finding], words: str) -> Finding:
    found = [each for each in findings if words in each.what]
    assert len(found) == 1, findings
    assert found[0].check == "image"
    assert found[0].docs in ("", "kedge help doctor image")
    return found[0]


def target(gpu: str, driver: str) -> Target:
    settings = Settings.load(environ={})
    return find_target(
        gpu=gpu, driver=driver, architecture="amd64", environ={}, settings=settings, tables=load_tables()
    )


@each_row(("gpu", "driver", "level", "said"), [
    ("H200", "580.95.05", OK, "runs natively"),
    ("A100", "535.104.05", NOTE, "runs on NVIDIA A100"),
    ("A100", "450.80.02", FAIL, "does not run"),
    ("K40", "470.57.02", FAIL, "does not run"),
])  # fmt: skip
def test_image_verdict_is_a_finding(gpu: str, driver: str, level: str, said: str, tmp_path: Path) -> None:
    traits = replace(PLAIN, capabilities=Fact("5.2 6.0 7.0 7.5 8.0 8.6 9.0+PTX"), driver=Fact("550.54.14"))
    place = target(gpu, driver)
    findings = judge_image(traits, judge(traits, place, load_tables()), place, {"HOME": str(tmp_path)})
    headline = findings[1]
    assert (headline.level, said in headline.what) == (level, True)
    if level == FAIL:
        assert headline.why
        assert headline.fix


def test_image_without_a_verdict_or_that_cannot_be_read(tmp_path: Path) -> None:
    findings = judge_image(PLAIN, None, None, {"HOME": str(tmp_path)})
    assert findings == [Finding("image", OK, "a/b:1: PyTorch, CUDA 12.4.0, Python 3.10, amd64")]
    (nothing,) = judge_image(ImageTraits(name="x"), None, None, {"HOME": str(tmp_path)})
    assert nothing.what == "x: content unknown"
    finding = explain_problem("x.sif", CorruptImage("x.sif is cut short", hint="pull it again"))
    assert (finding.level, finding.what, finding.fix) == (FAIL, "x.sif is cut short", "pull it again")


def test_image_with_an_empty_libcuda(tmp_path: Path) -> None:
    note = (
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1 is empty: the image was made in a container that had the driver mounted"
    )
    findings = judge_image(replace(PLAIN, notes=(note, "other")), None, None, {"HOME": str(tmp_path)})
    finding = find(findings, "is empty")
    assert finding.level == WARNING
    assert finding.what == "/usr/lib/x86_64-linux-gnu/libcuda.so.1 is empty"
    assert "rebuild the image" in finding.fix
    assert find(findings, "other").level == NOTE


@each_row(("has_gpus", "level"), [(True, WARNING), (False, NOTE), (None, NOTE)])
def test_image_of_musl(tmp_path: Path, has_gpus: bool | None, level: str) -> None:
    place = Target(title="there", has_gpus=has_gpus)
    findings = judge_image(replace(PLAIN, glibc=Fact("musl")), None, place, {"HOME": str(tmp_path)})
    assert find(findings, "musl (Alpine)").level == level


def test_image_that_brings_its_own_libcuda_or_entrypoint(tmp_path: Path) -> None:
    traits = replace(PLAIN, compat=Fact("yes"), driver=Fact("550.54.14"))
    card = Gpu("NVIDIA GeForce RTX 3090", takes_forward_compat=False)
    finding = find(judge_image(traits, None, Target("x", gpus=(card,)), {"HOME": str(tmp_path)}), "its own libcuda")
    assert "(804)" in finding.why
    assert "RTX 3090" in finding.why
    data_center = Target("x", gpus=(Gpu("NVIDIA A100", takes_forward_compat=True),))
    assert len(judge_image(traits, None, data_center, {"HOME": str(tmp_path)})) == 1
    traits = replace(PLAIN, entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",))
    assert find(judge_image(traits, None, None, {"HOME": str(tmp_path)}), "'exec' and 'shell' do not").level == NOTE


@each_row(("release", "said"), [
    ("25.03", "PIP_CONSTRAINT=/etc/pip"), ("26.07", "PIP_CONSTRAINT=/etc/pip"),
    ("24.12", "may replace NVIDIA's build"),
])  # fmt: skip
def test_image_pip_of_its_release(tmp_path: Path, release: str, said: str) -> None:
    traits = replace(PLAIN, release=Fact(release))
    assert find(judge_image(traits, None, None, {"HOME": str(tmp_path)}), said).fix
    other = replace(traits, framework=Fact("TensorFlow"))
    assert len(judge_image(other, None, None, {"HOME": str(tmp_path)})) == 1


def test_image_whose_python_finds_packages_in_the_home(tmp_path: Path) -> None:
    (tmp_path / ".local/lib/python3.10/site-packages/torch-2.1.0.dist-info").mkdir(parents=True)
    (tmp_path / ".local/lib/python3.9/site-packages/numpy-1.26.dist-info").mkdir(parents=True)
    environ = {"HOME": str(tmp_path)}
    finding = find(judge_image(PLAIN, None, None, environ), "~/.local/lib/python3.10 (1 package)")
    assert finding.level == NOTE
    assert "kedge does not pass them on" in finding.fix
    let_in = judge_image(PLAIN, None, None, {**environ, "KEDGE_KEEP": "user-site"})
    assert find(let_in, "python3.10").level == WARNING
    assert len(judge_image(PLAIN, None, None, {**environ, "PYTHONNOUSERSITE": "1"})) == 1
    assert len(judge_image(replace(PLAIN, python=Fact("3.12")), None, None, environ)) == 1
    assert len(judge_image(replace(PLAIN, python=Fact()), None, None, environ)) == 1
