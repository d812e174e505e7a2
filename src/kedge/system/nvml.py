# SPDX-License-Identifier: BSD-3-Clause
"""Asks NVIDIA's management library, by ctypes. Call it in a child: a broken driver never answers.

`system/host/gpu_probe.py` does that, and says what the numbers mean.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

TYPE_CHECKING = False  # as typing has it, whose import costs every recorded run
if TYPE_CHECKING:
    from typing import Any

NAME = "libnvidia-ml.so.1"
NOT_LOADED = -1  # no code of NVML's: the library is not there, or cannot be loaded
_FUNCTION_NOT_FOUND = 13
_TEXT_SIZE = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest of the texts asked for
_MOST_GPUS = 64


class NvmlError(Exception):
    """NVML refused a call; `code` is its number of the reason."""

    def __init__(self, call: str, code: int, text: str = "") -> None:
        super().__init__(f"{call}: {text or code}")
        self.call = call
        self.code = code
        self.text = text


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilisation(ctypes.Structure):
    """nvmlUtilization_t: per cent of the last moments in which a kernel ran, or memory was read or written."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Fabric(ctypes.Structure):
    """nvmlGpuFabricInfo_t; the state is 0 not supported, 1 not started, 2 in progress, 3 completed."""

    _fields_ = (
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


def ask_nvml(library: str = "") -> dict[str, Any]:
    """Ask NVML for all that kedge wants to know, as plain values; raises NvmlError where the library cannot be used.

    `library` is its path where the loader does not know it. What a GPU does not tell is None.
    """
    nvml = _Nvml(library)
    nvml.call("nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        nvml.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return {
            "driver": nvml.try_text("nvmlSystemGetDriverVersion") or "",
            "nvml": nvml.try_text("nvmlSystemGetNVMLVersion") or "",
            "cuda": nvml.try_number("nvmlSystemGetCudaDriverVersion_v2", kind=ctypes.c_int),
            "gpus": [_ask_gpu(nvml, number) for number in range(min(count.value, _MOST_GPUS))],
        }
    finally:
        nvml.attempt("nvmlShutdown")


class GpuMeter:
    """Reads again and again how busy the GPUs are; as `ask_nvml`, for a child alone."""

    def __init__(self, library: str = "") -> None:
        self._nvml = _Nvml(library)
        self._nvml.call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._nvml.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._handles = [ctypes.c_void_p() for _ in range(min(count.value, _MOST_GPUS))]
        for number, handle in enumerate(self._handles):
            self._nvml.attempt("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))

    def read(self) -> list[tuple[int | None, int | None]]:
        """Bytes of memory in use and per cent of time in use, of each; None: it does not tell."""
        return [self._read_gpu(handle) for handle in self._handles]

    def _read_gpu(self, handle: ctypes.c_void_p) -> tuple[int | None, int | None]:
        memory, busy = _Memory(), _Utilisation()
        has_memory = self._nvml.attempt("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        has_busy = self._nvml.attempt("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy))
        return memory.used if has_memory else None, busy.gpu if has_busy else None


def _ask_gpu(nvml: _Nvml, number: int) -> dict[str, Any]:
    handle = ctypes.c_void_p()
    try:
        nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
    except NvmlError as problem:
        return {"error": problem.code, "call": problem.call}
    memory, fabric = _Memory(), _Fabric()
    major, minor = ctypes.c_int(), ctypes.c_int()
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    has_capability = nvml.attempt(
        "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor)
    )
    has_mig = nvml.attempt("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    has_memory = nvml.attempt("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    has_fabric = nvml.attempt("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(fabric))
    return {
        "name": nvml.try_text("nvmlDeviceGetName", handle),
        "uuid": nvml.try_text("nvmlDeviceGetUUID", handle),
        "minor": nvml.try_number("nvmlDeviceGetMinorNumber", handle),
        "brand": nvml.try_number("nvmlDeviceGetBrand", handle),
        "capability": [major.value, minor.value] if has_capability else None,
        "memory": memory.total if has_memory else None,
        "mig": bool(current.value) if has_mig else None,
        "parts": _list_parts(nvml, handle) if has_mig and current.value else [],
        "persistence": nvml.try_number("nvmlDeviceGetPersistenceMode", handle),
        "fabric": fabric.state if has_fabric else None,
    }


def _list_parts(nvml: _Nvml, handle: ctypes.c_void_p) -> list[str]:
    """The names of a card's MIG parts, as CUDA_VISIBLE_DEVICES has them."""
    count = nvml.try_number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    parts = []
    for number in range(min(count, _MOST_GPUS)):
        part = ctypes.c_void_p()
        if nvml.attempt("nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(number), ctypes.byref(part)):
            parts.append(nvml.try_text("nvmlDeviceGetUUID", part) or "")
    return [part for part in parts if part]


class _Nvml:
    """The loaded library."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path or NAME)
        except OSError as problem:
            raise NvmlError(path or NAME, NOT_LOADED, str(problem)) from None

    def call(self, name: str, *arguments: object) -> None:
        """Call a function; raises NvmlError for every answer but 0."""
        function: Callable[..., int] | None = getattr(self._library, name, None)
        if function is None:  # an older driver's library
            raise NvmlError(name, _FUNCTION_NOT_FOUND)
        code = function(*arguments)
        if code:
            raise NvmlError(name, code)

    def attempt(self, name: str, *arguments: object) -> bool:
        """Call a function that may be refused; whether it was not."""
        try:
            self.call(name, *arguments)
        except NvmlError:
            return False
        return True

    def try_text(self, name: str, *arguments: object) -> str | None:
        """The text that a function writes; None where it is refused."""
        text = ctypes.create_string_buffer(_TEXT_SIZE)
        if not self.attempt(name, *arguments, text, ctypes.c_uint(_TEXT_SIZE)):
            return None
        return text.value.decode(errors="replace")

    def try_number(self, name: str, *arguments: object, kind: type[Any] = ctypes.c_uint) -> int | None:
        """The number that a function writes; None where it is refused."""
        number = kind()
        return int(number.value) if self.attempt(name, *arguments, ctypes.byref(number)) else None
