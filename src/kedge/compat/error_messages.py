# SPDX-License-Identifier: BSD-3-Clause
"""Messages of CUDA, NVIDIA's tools, runtimes, schedulers and Python that users meet: what each means, what to do.

The order is that of causes: what stands first in the table explains what stands after it.
"""

from __future__ import annotations

import re

from kedge.compat.image.clean_config import clean_text
from kedge.frozen import JsonValue, frozen

_LONGEST_LINE = 240
_ARCHITECTURE = re.compile(r"\b(?:sm|compute)_(\d{1,2})(\d)")  # `sm_86`, which people know as 8.6
_RECOMMEND = "'kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that fits"
_TELL = "use another node, and tell the administrators"


@frozen
class Clue(JsonValue):
    """A line that explains a failure."""

    line: str  # as it was written
    cause: str  # a part of a sentence, without a full stop
    remedy: str
    is_failure: bool = True  # False: programs go on, and may fail later because of it


@frozen
class Message:
    """One message, and what it means; `{1}` stands for the pattern's first group."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str
    is_failure: bool = True


def _make(name: str, pattern: str, cause: str, remedy: str, *, is_failure: bool = True) -> Message:
    return Message(name, re.compile(pattern, re.IGNORECASE), cause, remedy, is_failure)


MESSAGES: tuple[Message, ...] = (
    _make(
        "job-memory",
        r"exceeded (?:job |step )?memory limit|Detected \d+ oom[-_]kill event|PBS: job killed: v?mem \S+ exceeded",
        "it used more memory than it asked for, and the scheduler ended it",
        "ask for more with --mem, or let it use less: smaller batches, fewer worker processes",
    ),
    _make(
        "requirement",
        r"requirement error: unsatisfied condition: ([^,\"\n]{1,60})",
        "the image's NVIDIA_REQUIRE_CUDA asks for {1}, and the driver of that node does not offer it; a CUDA toolkit "
        "that is installed there (nvcc) makes no difference",
        f"take an older tag ({_RECOMMEND}) or a newer driver; where 'kedge explain' says that it runs all the same, "
        "set NVIDIA_DISABLE_REQUIRE=1: kedge and 'apptainer --nv' do not ask for it",
    ),
    _make(
        "invalid-requirement",
        r"requirement error: invalid expression",
        "an NVIDIA_REQUIRE_ variable of the image is malformed",
        "set NVIDIA_DISABLE_REQUIRE=1, or start it with kedge, which does not ask for it",
    ),
    _make(
        "version-mismatch",
        r"Failed to initialize NVML: Driver/library version mismatch|Driver/library version mismatch",
        "the driver of that node was updated while the old one still runs, or a library of another driver was bound "
        "into the container",
        f"'kedge doctor' on the node says which; the node must be rebooted: {_TELL}",
    ),
    _make(
        "not-ready-802",
        r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|\berror 802\b",
        "the GPUs of that node are joined by NVSwitch, and its fabric manager does not run, or has not finished "
        "(error 802); neither the image nor the program is at fault",
        f"the service nvidia-fabricmanager, of the driver's own version, must be started: {_TELL}",
    ),
    _make(
        "mismatch-803",
        r"SYSTEM_DRIVER_MISMATCH|unsupported display driver ?/ ?cuda driver combination|\berror 803\b",
        "the libcuda that was loaded does not go with the driver in the kernel (error 803): an older one of the image "
        "hides the host's, or the node's driver was updated without a reboot",
        "start it with 'kedge run --nv', which takes the right one; else take /usr/local/cuda/compat out of "
        "LD_LIBRARY_PATH; if it stays so, the node must be rebooted",
    ),
    _make(
        "forward-804",
        r"forward compatibility was attempted on non[- ]supported HW|COMPAT_NOT_SUPPORTED_ON_DEVICE"
        r"|cudaErrorCompatNotSupportedOnDevice|\b(?:CUDA )?(?:error|failure) 804\b",
        "the libcuda of the image (/usr/local/cuda/compat) was loaded, and it runs on data-center GPUs only (error "
        "804), or the node's driver was updated without a reboot; nvidia-smi does not notice it",
        "start it with 'kedge run --nv', which leaves it out there; else take compat out of LD_LIBRARY_PATH; where "
        f"the driver is too old for the image then: {_RECOMMEND}",
    ),
    _make(
        "unavailable",
        r"built for NVIDIA Driver Release ([\d.]+) or later,\s+but\s+version ([\d.]+)\s+was\s+detected\s+and\s+"
        r"compatibility\s+mode\s+is\s+UNAVAILABLE",
        "driver {2} of that node is too old for the image, which was built for {1}, and forward compatibility does not "
        "work on its GPU",
        f"take an older tag ({_RECOMMEND}), or a newer driver",
    ),
    _make(
        "insufficient-35",
        r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver"
        r"|NVIDIA driver on your system is too old",
        "the driver of that node is older than the CUDA of the image needs (error 35); a CUDA toolkit that is "
        "installed there makes no difference",
        f"take an older tag ({_RECOMMEND}), or a queue with a newer driver",
    ),
    _make(
        "empty-libcuda",
        r"libcuda\.so\S*: file too short",
        "the image has an empty libcuda: it was made in a container that had the driver mounted",
        "start it with 'kedge run --nv', which puts the host's before it; delete such files when you build the image",
    ),
    _make(
        "no-libcuda",
        r"libcuda\.so(?:\.1)?: cannot open shared object file|Could not find any nv files on this host",
        "there was no driver in the container: --nv was left out, the node has no NVIDIA GPU, or LD_LIBRARY_PATH was "
        "set anew and lost /.singularity.d/libs",
        "add --nv; ask the scheduler for a GPU; write LD_LIBRARY_PATH=NEW:$LD_LIBRARY_PATH in scripts that set it",
    ),
    _make(
        "no-driver",
        r"The NVIDIA Driver was not detected",
        "NVIDIA's entrypoint found no driver in the container: --nv was left out, or the job has no GPU",
        "add --nv, and ask the scheduler for a GPU",
    ),
    _make(
        "nvccli-setuid",
        r"nvidia-container-cli not allowed in setuid mode|path to \"?nvidia-container-cli\"? not set",
        "that runtime needs nvidia-container-cli for --nvccli, and may not use it here",
        "leave --nvccli out: --nv does without it, for MIG too; kedge takes both as the same",
    ),
    _make(
        "host-glibc",
        r"(GLIBC_[\w.]+)['\u2019]? not found \(required by (/\.singularity\.d/libs/\S+?)\)",
        "a library of the host, {2}, was brought into an image whose C library is older",
        "start it with 'kedge run --nv', which brings in the driver's own libraries only; or take a newer image",
    ),
    _make(
        "torch-architectures",
        r"with CUDA capability (sm_\d{2,3}) is not compatible with the current PyTorch installation"
        r"(?:[\s\S]{0,60}?supports CUDA capabilities ((?:(?:sm|compute)_\d+ ?)+))?",
        "the image has no kernels for a GPU of compute capability {1}; it has {2}",
        f"take an image that has them ({_RECOMMEND}), or another GPU",
    ),
    _make(
        "no-kernel-209",
        r"no kernel image is available for execution on the device|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|cudaErrorNoKernelImageForDevice",
        "the image has no kernels for that GPU (error 209): the GPU is too old for it, or too new",
        f"'kedge explain IMAGE --gpu GPU' shows what it has; {_RECOMMEND}; in a mixed queue ask for one kind of GPU",
    ),
    _make(
        "ptx-222",
        r"provided PTX was compiled with an unsupported toolchain|cudaErrorUnsupportedPtxVersion"
        r"|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the driver is older than the CUDA of the image, which runs by minor-version compatibility, but cannot compile "
        "its PTX (error 222)",
        f"take an image whose CUDA the driver offers itself ({_RECOMMEND}), or a newer driver",
    ),
    _make(
        "no-device",
        r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
        "the program was given no GPU: CUDA_VISIBLE_DEVICES names one that is not there, or GPUs were hidden twice, by "
        "NVIDIA_VISIBLE_DEVICES and by CUDA_VISIBLE_DEVICES",
        "'kedge doctor' in the job says which GPUs there are; set neither of the two variables by hand",
    ),
    _make(
        "gpu-memory",
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "the memory of the GPU is full; --mem is that of the node and makes no difference",
        "make batches smaller, take a GPU with more memory, or more GPUs; 'nvidia-smi' in the job shows who uses it",
    ),
    _make(
        "memory-error",
        r"(?<![\w.])MemoryError\b|_ArrayMemoryError\b|std::bad_alloc|Cannot allocate memory",
        "a program asked for more memory than the node or the job's limit gives",
        "ask for more with --mem, or let it use less: smaller batches, fewer worker processes",
    ),
    _make(
        "full-disk",
        r"No space left on device|Disk quota exceeded",
        "a disk is full, or a quota is used up: of space or of the number of files",
        "'df -h DIRECTORY', 'df -i DIRECTORY' and 'quota -s' show how much is left; write to scratch, or remove what "
        "is not needed; 'kedge cache clean' makes room where kedge's cache is",
    ),
    _make(
        "no-module",
        r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]{1,100})",
        "Python has no module {1} there: the image does not have it, another python3 ran than the one it is installed "
        "for, or its directory is not seen in the container",
        "take an image that has it, or make an environment in the container: 'kedge exec IMAGE python3 -m venv "
        "--system-site-packages DIRECTORY', then run DIRECTORY/bin/python",
    ),
    _make(
        "pip-constraint",
        r"The user requested \(constraint\) ([\w.\-]+)|ResolutionImpossible",
        "pip in NVIDIA's images is bound to the versions they were built with (PIP_CONSTRAINT)",
        "pip install --no-deps NAME; or a copy of /etc/pip/constraint.txt without the lines in question: "
        "PIP_CONSTRAINT=COPY",
    ),
    _make(
        "no-manifest",
        r"manifest unknown|MANIFEST_UNKNOWN",
        "the registry does not have that tag (any more); NVIDIA's images have no 'latest', and tags of old CUDA are "
        "deleted",
        "'kedge tags IMAGE' lists those that there are; keep the SIF, or the digest",
    ),
    _make(
        "minor-mode",
        r"Minor Version Compatibility mode ENABLED",
        "the driver is older than the CUDA of the image: programs run, but what compiles PTX fails with error 222",
        f"where that happens: {_RECOMMEND}",
        is_failure=False,
    ),
    _make(
        "forward-mode",
        r"Forward Compatibility mode ENABLED",
        "the image's own libcuda runs on the older driver of that node, as it is made to",
        "nothing is to be done",
        is_failure=False,
    ),
)


def find_clues(text: str, *, notes: bool = False) -> tuple[Clue, ...]:
    """What of `text` explains a failure, causes first; with `notes` also what is said of compatibility modes."""
    clues = []
    flat = text.replace("\r", "\n")
    for message in MESSAGES:
        match = message.pattern.search(flat) if message.is_failure or notes else None
        if match is not None:
            clues.append(Clue(_cut_line(flat, match), _fill(message, match), message.remedy, message.is_failure))
    return tuple(clues)


def _cut_line(text: str, match: re.Match[str]) -> str:
    """The line around a match, the match itself where it is long."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = clean_text(text[start : end if end >= 0 else len(text)], 4 * _LONGEST_LINE)
    return line if len(line) <= _LONGEST_LINE else clean_text(match[0], _LONGEST_LINE)


def _fill(message: Message, match: re.Match[str]) -> str:
    cause = message.cause
    for number, group in enumerate(match.groups(), 1):
        shown = clean_text(_ARCHITECTURE.sub(r"\1.\2", group), 120) if group else ""
        cause = cause.replace(f"{{{number}}}", shown or "others only")
    return cause
