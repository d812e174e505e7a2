# SPDX-License-Identifier: BSD-3-Clause
"""Cases of `run`: what kedge says of the GPU and predicts for images, against what nvidia-smi and the driver do."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# PTX: (its version, its target, the CUDA that writes this version); what runs it depends on the GPU and the driver
TEXTS = (
    ("6.3", "sm_70", "10.0"),
    ("8.0", "sm_90", "12.0"),
    ("8.4", "sm_80", "12.4"),
    ("8.7", "sm_100", "12.8"),
    ("8.7", "sm_120", "12.8"),
)
BINARIES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_120")  # kernels that ptxas makes
OLD_KERNELS = "3.5 3.7"


def try_truth(trial: Any, smi: str) -> None:
    """All of it."""
    seen = ask_machine(trial, smi)
    if seen is None:
        return
    try_doctor(trial, seen)
    try_variable(trial)
    texts = [{"cuda": cuda, "capabilities": name_virtual(target)} for _, target, cuda in TEXTS]
    invented = [
        {"cuda": "99.0", "capabilities": seen["capability"]},
        {"cuda": seen["cuda"], "capabilities": OLD_KERNELS},
        {"cuda": seen["cuda"], "capabilities": seen["capability"]},
    ]
    told = ask_kedge(trial, [*texts, *invented])
    compare_facts(trial, told, seen)
    met = [try_text(trial, case, verdict) for case, verdict in zip(TEXTS, told["verdicts"], strict=False)]
    predicted = [verdict["outcome"] for verdict in told["verdicts"][len(texts) :]]
    right = predicted == ["no", "no", "native"]
    trial.record("predicted: CUDA 99 no, kernels of Kepler no, this GPU's own native", right, predicted)
    met += try_newer_text(trial, seen)
    met += try_binaries(trial)
    shown = f"{met.count(True)} that run, {met.count(False)} that do not"
    trial.record("predictions of both kinds were met", {True, False} <= set(met), shown)
    try_torch_prediction(trial)


def ask_machine(trial: Any, smi: str) -> dict[str, str] | None:
    """The truth about the machine, from nvidia-smi."""
    query = "name,driver_version,uuid,compute_cap"
    rows = trial.run([smi, f"--query-gpu={query}", "--format=csv,noheader"])
    page = trial.run([smi])
    brands = trial.run([smi, "-q"])
    words = [word.strip() for word in rows.output.splitlines()[0].split(",")] if rows.output.strip() else []
    cuda = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+\.\d+)", page.output)
    brand = re.search(r"Product Brand\s*:\s*(.+)", brands.output)
    if rows.status or len(words) != 4:
        trial.record("truth: nvidia-smi", None, rows.show())
        return None
    seen = dict(zip(("name", "driver", "uuid", "capability"), words, strict=True))
    seen |= {"cuda": cuda[1] if cuda else "", "brand": brand[1].strip() if brand else ""}
    trial.record("truth: nvidia-smi", bool(cuda and brand), seen)
    return seen


def ask_kedge(trial: Any, cases: list[dict[str, str]]) -> dict[str, Any]:
    """What kedge says, as the ordinary user hears it."""
    script = trial.folder / "ask_kedge.py"
    if not script.exists():
        shutil.copy(HERE / "ask_kedge.py", script)
    done = trial.run([trial.python, "-s", str(script), str(trial.source / "lib"), json.dumps(cases)])
    answer: dict[str, Any] = done.parse()
    if not answer:
        trial.record("kedge tells its facts", False, done.show())
        return {"target": {}, "probe": {}, "verdicts": [{"outcome": "", "runs": None, "headline": ""}] * len(cases)}
    return answer


def try_doctor(trial: Any, seen: dict[str, str]) -> None:
    """`kedge doctor` says the same as nvidia-smi, and no GPU check fails on a machine that is well."""
    done = trial.run([trial.python, "-s", str(trial.source / "kedge.py"), "doctor", "--gpu", "--offline", "--json"])
    try:
        told = json.loads(done.output)
    except ValueError:
        trial.record("doctor", False, done.show())
        return
    findings = [each for each in told["findings"] if each["group"] == "GPU"]
    answer = " ".join(each["what"] for each in findings if each["check"] == "gpu-answer" and each["level"] == "ok")
    wanted = (f"driver {seen['driver']},", f"CUDA up to {seen['cuda']};", seen["name"], seen["capability"])
    missing = [word for word in wanted if word not in answer]
    trial.record("doctor says what nvidia-smi says", not missing, answer or done.show(), done.seconds)
    wrong = [f"{each['check']}: {each['what']}" for each in findings if each["level"] == "fail"]
    shown = [f"{each['check']} {each['level']}: {each['what']}" for each in findings]
    trial.record("doctor finds no fault in a GPU that works", not wrong, wrong or " | ".join(shown))
    trial.rows[-1]["findings"] = findings
    trial.record("doctor took less than 2 s", done.seconds < 2.0, f"{told['total_seconds']} s of checks", done.seconds)


def try_variable(trial: Any) -> None:
    """What doctor says of CUDA_VISIBLE_DEVICES, and what CUDA makes of it."""
    program, doctor = trial.folder / "vector_add", [trial.python, "-s", str(trial.source / "kedge.py"), "doctor"]
    for value in ("0", "0,0", "0,99", "99", "-1"):
        done = trial.run([str(program)], CUDA_VISIBLE_DEVICES=value)
        told = trial.run([*doctor, "--only", "gpu-selection", "--json"], CUDA_VISIBLE_DEVICES=value)
        findings = json.loads(told.output)["findings"] if told.output.startswith("{") else []
        said = findings[0]["level"] if findings else told.show()
        ran = done.status == 0
        is_whole = ran and done.parse().get("devices") == len(value.split(","))
        shown = f"doctor: {said}; {done.show()}"
        agree = said == ("ok" if is_whole else "warning")
        trial.record(f"CUDA_VISIBLE_DEVICES={value}: doctor and CUDA agree", agree, shown)


def compare_facts(trial: Any, told: dict[str, Any], seen: dict[str, str]) -> None:
    """The target and NVML against nvidia-smi."""
    target, probe, hidden = told["target"], told["probe"], told.get("hidden", {})
    gpus, probed = target.get("gpus") or [{}], probe.get("gpus") or [{}]
    pairs = {
        "target: driver": (target.get("driver"), seen["driver"]),
        "target: capability": (gpus[0].get("capability"), seen["capability"]),
        "target: brand": (gpus[0].get("brand"), seen["brand"].lower().replace(" ", "")),
        "target: name": (gpus[0].get("name"), seen["name"]),
        "without /proc/driver: driver": (hidden.get("driver"), seen["driver"]),
        "without /proc/driver: CUDA": (hidden.get("cuda"), seen["cuda"]),
        "without /proc/driver: name": ((hidden.get("gpus") or [{}])[0].get("name"), seen["name"]),
        "NVML: driver": (probe.get("driver"), seen["driver"]),
        "NVML: library": (probe.get("library"), seen["driver"]),
        "NVML: CUDA": (probe.get("cuda"), seen["cuda"]),
        "NVML: name": (probed[0].get("name"), seen["name"]),
        "NVML: capability": (probed[0].get("capability"), seen["capability"]),
        "NVML: brand": (probed[0].get("brand"), seen["brand"].lower().replace(" ", "")),
        "NVML: UUID": (probed[0].get("uuid"), seen["uuid"]),
    }
    for name, (ours, theirs) in pairs.items():
        trial.record(f"{name} is nvidia-smi's", ours == theirs, f"{ours!r}, nvidia-smi has {theirs!r}")
    trial.record("the machine's facts", bool(target), f"{target} in {told.get('seconds', 0):.3f} s")


def name_virtual(target: str) -> str:
    """`compute_80`: PTX alone, no kernels."""
    return target.replace("sm_", "compute_")


def compare(trial: Any, name: str, verdict: dict[str, Any], done: Any) -> bool | None:
    """One prediction against what the driver did; no prediction is a wrong one."""
    runs: bool = done.status == 0
    said = verdict["outcome"]
    error = done.parse().get("error", "")
    shown = f"predicted {said} ({verdict['headline']}); {'it ran' if runs else f'it failed: {error}'}"
    trial.record(f"predicted: {name}", verdict["runs"] is runs and bool(runs or error), shown, done.seconds)
    return runs


def try_text(trial: Any, case: tuple[str, str, str], verdict: dict[str, Any]) -> bool | None:
    """PTX: the driver compiles it, or refuses it."""
    program = trial.folder / "vector_add"
    if not program.exists():
        return None
    version, target, cuda = case
    done = trial.run([str(program), version, target])
    return compare(trial, f"PTX {version} for {target} (CUDA {cuda})", verdict, done)


def try_newer_text(trial: Any, seen: dict[str, str]) -> list[bool | None]:
    """PTX of the driver's own CUDA, and of the next minor: what minor-version compatibility cannot do."""
    major, _, minor = seen["cuda"].partition(".")
    if major != "13":  # PTX 9.0 is that of CUDA 13.0, and so on; earlier numbers are less regular
        return []
    cases = [(f"9.{int(minor) + more}", "sm_80", f"13.{int(minor) + more}") for more in (0, 1)]
    wanted = [{"cuda": cuda, "capabilities": "compute_80", "libcuda": "host"} for _, _, cuda in cases]
    verdicts = ask_kedge(trial, wanted)["verdicts"]
    return [try_text(trial, case, verdict) for case, verdict in zip(cases, verdicts, strict=True)]


def try_binaries(trial: Any) -> list[bool | None]:
    """Kernels without PTX, made by ptxas, for this GPU and for others."""
    compiler = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
    program = trial.folder / "vector_add"
    if not Path(compiler).exists() or not program.exists():
        trial.record("kernels of ptxas", None, "there is no ptxas here")
        return []
    release = re.search(r"release (\d+\.\d+)", trial.run([compiler, "--version"]).output)
    cuda = release[1] if release else ""
    cases = [{"cuda": cuda, "capabilities": name} for name in BINARIES]
    met = []
    for name, verdict in zip(BINARIES, ask_kedge(trial, cases)["verdicts"], strict=True):
        text, binary = trial.home / f"{name}.ptx", trial.home / f"{name}.cubin"
        text.write_text(trial.run([str(program), "--print", "8.7", name]).output)
        made = trial.run([compiler, f"-arch={name}", "-o", str(binary), str(text)])
        if made.status:
            trial.record(f"predicted: kernels for {name}", None, made.show())
            continue
        done = trial.run([str(program), "--load", str(binary)])
        met.append(compare(trial, f"kernels for {name} (CUDA {cuda})", verdict, done))
    return met


def try_torch_prediction(trial: Any) -> None:
    """PyTorch's own CUDA and list of kernels: predicted, and tried."""
    question = (
        "import json, torch; a = torch.ones(64, 64, device='cuda') @ torch.ones(64, 64, device='cuda'); "
        "print(json.dumps({'cuda': torch.version.cuda, 'list': torch.cuda.get_arch_list(), 'sum': a.sum().item()}))"
    )
    done = trial.run([trial.python, "-s", "-c", question])
    answer = done.parse()
    if not answer:
        trial.record("predicted: PyTorch", None, done.show()[-200:])
        return
    capabilities = " ".join(answer["list"])
    verdict = ask_kedge(trial, [{"cuda": answer["cuda"], "capabilities": capabilities}])["verdicts"][0]
    ran = answer["sum"] == 64.0**3
    shown = f"CUDA {answer['cuda']}, {capabilities}: predicted {verdict['headline']}; the product is {answer['sum']}"
    trial.record("predicted: PyTorch runs natively", ran and verdict["outcome"] == "native", shown, done.seconds)
