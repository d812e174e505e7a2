# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA's driver and its libraries: too old, mixed, or not in the container."""

from __future__ import annotations

from kedge.compat.failures.failure import NOTE, Failure

DRIVER = (
    Failure(
        "requirement",
        r"requirement error: unsatisfied condition: ([^,\"\n]{1,60})",
        cause=(
            "the image's NVIDIA_REQUIRE_CUDA asks for {1}, and the driver of that node does not offer it; a "
            "CUDA toolkit that is installed there (nvcc) makes no difference"
        ),
        remedy=(
            "take an older tag ('kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that fits) or "
            "a newer driver; where 'kedge explain' says that it runs all the same, set "
            "NVIDIA_DISABLE_REQUIRE=1: kedge and 'apptainer --nv' do not ask for it"
        ),
        source="https://github.com/NVIDIA/nvidia-docker/issues/1442",
        examples=(
            (
                "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your "
                "driver to a newer version, or use an earlier cuda container: unknown."
            ),
        ),
    ),
    Failure(
        "invalid-requirement",
        r"requirement error: invalid expression",
        cause="an NVIDIA_REQUIRE_ variable of the image is malformed",
        remedy="set NVIDIA_DISABLE_REQUIRE=1, or start it with kedge, which does not ask for it",
        source="libnvidia-container's requirement parser",
        examples=("nvidia-container-cli: requirement error: invalid expression",),
    ),
    Failure(
        "version-mismatch",
        r"Failed to initialize NVML: Driver/library version mismatch|Driver/library version mismatch",
        cause=(
            "the driver of that node was updated while the old one still runs, or a library of another driver"
            " was bound into the container"
        ),
        remedy=(
            "'kedge doctor' on the node says which; the node must be rebooted: use another node, and tell the"
            " administrators"
        ),
        source="nvidia-smi",
        examples=("Failed to initialize NVML: Driver/library version mismatch",),
    ),
    Failure(
        "not-ready-802",
        r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|\berror 802\b",
        cause=(
            "the GPUs of that node are joined by NVSwitch, and its fabric manager does not run, or has not "
            "finished (error 802); neither the image nor the program is at fault"
        ),
        remedy=(
            "the service nvidia-fabricmanager, of the driver's own version, must be started: use another "
            "node, and tell the administrators"
        ),
        source="https://github.com/gpustack/gpustack/issues/1254",
        examples=(
            (
                "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered "
                "internally at"
            ),
        ),
    ),
    Failure(
        "mismatch-803",
        r"SYSTEM_DRIVER_MISMATCH|unsupported display driver ?/ ?cuda driver combination|\berror 803\b",
        cause=(
            "the libcuda that was loaded does not go with the driver in the kernel (error 803): an older one "
            "of the image hides the host's, or the node's driver was updated without a reboot"
        ),
        remedy=(
            "start it with 'kedge run --nv', which takes the right one; else take /usr/local/cuda/compat out "
            "of LD_LIBRARY_PATH; if it stays so, the node must be rebooted"
        ),
        source="CUDA's error table",
        examples=("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",),
    ),
    Failure(
        "forward-804",
        r"forward compatibility was attempted on non[- ]supported HW|COMPAT_NOT_SUPPORTED_ON_DEVICE"
        r"|cudaErrorCompatNotSupportedOnDevice|\b(?:CUDA )?(?:error|failure) 804\b",
        cause=(
            "the libcuda of the image (/usr/local/cuda/compat) was loaded, and it runs on data-center GPUs "
            "only (error 804), or the node's driver was updated without a reboot; nvidia-smi does not notice "
            "it"
        ),
        remedy=(
            "start it with 'kedge run --nv', which leaves it out there; else take compat out of "
            "LD_LIBRARY_PATH; where the driver is too old for the image then: 'kedge recommend IMAGE --gpu "
            "GPU --driver VERSION' names a tag that fits"
        ),
        source="https://github.com/DeepVAC/TorchPod/issues/43",
        examples=(
            (
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was "
                "attempted on non supported HW"
            ),
        ),
    ),
    Failure(
        "unavailable",
        r"built for NVIDIA Driver Release ([\d.]+) or later,\s+but\s+version "
        r"([\d.]+)\s+was\s+detected\s+and\s+compatibility\s+mode\s+is\s+UNAVAILABLE",
        cause=(
            "driver {2} of that node is too old for the image, which was built for {1}, and forward "
            "compatibility does not work on its GPU"
        ),
        remedy=(
            "take an older tag ('kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that fits), or"
            " a newer driver"
        ),
        source="entrypoint of NVIDIA's images",
        examples=(
            (
                "ERROR: This container was built for NVIDIA Driver Release 580.95 or later, but\n       version "
                "535.104.05 was detected and compatibility mode is UNAVAILABLE."
            ),
        ),
    ),
    Failure(
        "insufficient-35",
        r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver|NVIDIA "
        r"driver on your system is too old",
        cause=(
            "the driver of that node is older than the CUDA of the image needs (error 35); a CUDA toolkit "
            "that is installed there makes no difference"
        ),
        remedy=(
            "take an older tag ('kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that fits), or"
            " a queue with a newer driver"
        ),
        source="CUDA's error table",
        examples=("CUDA driver version is insufficient for CUDA runtime version",),
    ),
    Failure(
        "empty-libcuda",
        r"libcuda\.so\S*: file too short",
        cause="the image has an empty libcuda: it was made in a container that had the driver mounted",
        remedy=(
            "start it with 'kedge run --nv', which puts the host's before it; delete such files when you "
            "build the image"
        ),
        source="https://github.com/apptainer/singularity/issues/5935",
        examples=("ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short",),
    ),
    Failure(
        "no-libcuda",
        r"libcuda\.so(?:\.1)?: cannot open shared object file|Could not find any nv files on this host",
        cause=(
            "there was no driver in the container: --nv was left out, the node has no NVIDIA GPU, or "
            "LD_LIBRARY_PATH was set anew and lost /.singularity.d/libs"
        ),
        remedy=(
            "add --nv; ask the scheduler for a GPU; write LD_LIBRARY_PATH=NEW:$LD_LIBRARY_PATH in scripts that set it"
        ),
        source="https://github.com/apptainer/singularity/issues/5337",
        examples=("libcuda.so.1: cannot open shared object file: No such file or directory",),
    ),
    Failure(
        "no-driver",
        r"The NVIDIA Driver was not detected",
        cause="NVIDIA's entrypoint found no driver in the container: --nv was left out, or the job has no GPU",
        remedy="add --nv, and ask the scheduler for a GPU",
        source="entrypoint of NVIDIA's images",
        examples=("WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",),
    ),
    Failure(
        "nvccli-setuid",
        r"nvidia-container-cli not allowed in setuid mode|path to \"?nvidia-container-cli\"? not set",
        cause="that runtime needs nvidia-container-cli for --nvccli, and may not use it here",
        remedy="leave --nvccli out: --nv does without it, for MIG too; kedge takes both as the same",
        source="https://github.com/determined-ai/determined/pull/7337",
        examples=("FATAL: nvidia-container-cli not allowed in setuid mode",),
    ),
    Failure(
        "minor-mode",
        r"Minor Version Compatibility mode ENABLED",
        cause=(
            "the driver is older than the CUDA of the image: programs run, but what compiles PTX fails with error 222"
        ),
        remedy="where that happens: 'kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that fits",
        source="entrypoint of NVIDIA's images",
        examples=("WARNING: CUDA Minor Version Compatibility mode ENABLED.",),
        level=NOTE,
    ),
    Failure(
        "forward-mode",
        r"Forward Compatibility mode ENABLED",
        cause="the image's own libcuda runs on the older driver of that node, as it is made to",
        remedy="nothing is to be done",
        source="entrypoint of NVIDIA's images",
        examples=("NOTE: CUDA Forward Compatibility mode ENABLED.",),
        level=NOTE,
    ),
)
