# SPDX-License-Identifier: BSD-3-Clause
"""GPUs that a program cannot use: kernels, devices, errors of the hardware."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, POSSIBLE, Failure

CUDA = (
    Failure(
        "torch-architectures",
        r"with CUDA capability (sm_\d{2,3}) is not compatible with the current PyTorch "
        r"installation(?:[\s\S]{0,60}?supports CUDA capabilities ((?:(?:sm|compute)_\d+ ?)+))?",
        cause="the image has no kernels for a GPU of compute capability {1}; it has {2}",
        remedy=(
            "take an image that has them ('kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that"
            " fits), or another GPU"
        ),
        source="https://github.com/pytorch/pytorch/issues/52736",
        missing="others only",
        examples=(
            (
                "GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch "
                "installation.\nThe current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70."
            ),
        ),
    ),
    Failure(
        "no-kernel-209",
        r"no kernel image is available for execution on the device|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|cudaErrorNoKernelImageForDevice",
        cause="the image has no kernels for that GPU (error 209): the GPU is too old for it, or too new",
        remedy=(
            "'kedge explain IMAGE --gpu GPU' shows what it has; 'kedge recommend IMAGE --gpu GPU --driver "
            "VERSION' names a tag that fits; in a mixed queue ask for one kind of GPU"
        ),
        source="https://github.com/pytorch/pytorch/issues/31285",
        examples=("CUDA error: no kernel image is available for execution on the device",),
    ),
    Failure(
        "ptx-222",
        r"provided PTX was compiled with an unsupported toolchain|cudaErrorUnsupportedPtxVersion"
        r"|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        cause=(
            "the driver is older than the CUDA of the image, which runs by minor-version compatibility, but "
            "cannot compile its PTX (error 222)"
        ),
        remedy=(
            "take an image whose CUDA the driver offers itself ('kedge recommend IMAGE --gpu GPU --driver "
            "VERSION' names a tag that fits), or a newer driver"
        ),
        source="CUDA's error table",
        examples=("the provided PTX was compiled with an unsupported toolchain.",),
    ),
    Failure(
        "no-device",
        r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
        cause=(
            "the program was given no GPU: CUDA_VISIBLE_DEVICES names one that is not there, or GPUs were "
            "hidden twice, by NVIDIA_VISIBLE_DEVICES and by CUDA_VISIBLE_DEVICES"
        ),
        remedy="'kedge doctor' in the job says which GPUs there are; set neither of the two variables by hand",
        source="https://github.com/NVIDIA/pyxis/issues/47",
        examples=("RuntimeError: cuda runtime error (100) : no CUDA-capable device is detected",),
    ),
    Failure(
        "invalid-ordinal",
        r"invalid device ordinal|cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE",
        cause="the program chose a GPU number that it does not see: usually LOCAL_RANK 1 or higher, while the "
        "scheduler shows each task one GPU, which is always number 0",
        remedy="give every task all GPUs of its node: --gpus-per-node or --gpu-bind=none instead of --gpus-per-task; "
        "'kedge launch' does so",
        source="workflow facts: distributed launch; CUDA's error table (101)",
        examples=(
            "RuntimeError: CUDA error: invalid device ordinal",
            "torch.AcceleratorError: CUDA error: invalid device ordinal",
        ),
        sure=LIKELY,
    ),
    Failure(
        "gpu-busy",
        r"all CUDA-capable devices are busy or unavailable|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
        cause="another process uses the GPU, which is set to one process at a time (exclusive mode)",
        remedy="start one process per GPU; 'nvidia-smi' in the job shows who uses it; if it is not yours, use "
        "another "
        "node and tell the administrators",
        source="CUDA's error table (46)",
        examples=("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",),
        sure=LIKELY,
    ),
    Failure(
        "gpu-hardware",
        r"uncorrectable ECC error encountered|cudaErrorECCUncorrectable|GPU has fallen off the bus"
        r"|Unable to determine the device handle for GPU|NVRM: Xid \(PCI:[^)]{1,40}\): (\d+)",
        cause="the GPU or its memory is broken",
        remedy="run the job on another node (--exclude NODE), and tell the administrators which node it was",
        source="CUDA's error table (214); nvidia-smi",
        examples=(
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU",
        ),
    ),
    Failure(
        "device-assert",
        r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT\b",
        cause="a check inside a GPU kernel failed: usually a label or index outside of its range",
        remedy="run it with CUDA_LAUNCH_BLOCKING=1 to see the right line; check that labels are from 0 to the "
        "number of "
        "classes minus 1",
        source="PyTorch",
        examples=("RuntimeError: CUDA error: device-side assert triggered",),
        sure=LIKELY,
    ),
    Failure(
        "illegal-address",
        r"an illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS",
        cause="a GPU kernel used memory that is not its own: an error of the program or of a library that it uses",
        remedy="run it with CUDA_LAUNCH_BLOCKING=1 to see the right line; try a newer image of the framework",
        source="CUDA's error table (700)",
        examples=("RuntimeError: CUDA error: an illegal memory access was encountered",),
        sure=LIKELY,
    ),
    Failure(
        "torch-without-cuda",
        r"Torch not compiled with CUDA enabled|Found no NVIDIA driver on your system",
        cause="PyTorch has no CUDA, or there is no driver in the container: pip installed a CPU build, or --nv "
        "was left "
        "out",
        remedy="add --nv; 'kedge exec --nv IMAGE python -c \"import torch; print(torch.__version__, "
        "torch.__file__)\"' shows which PyTorch it is; remove a copy below ~/.local",
        source="PyTorch",
        examples=(
            "AssertionError: Torch not compiled with CUDA enabled",
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
            "installed a driver from http://www.nvidia.com/Download/index.aspx",
        ),
    ),
    Failure(
        "cudnn-init",
        r"CUDNN_STATUS_NOT_INITIALIZED|CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_VERSION_MISMATCH"
        r"|Could not load library libcudnn|Unable to load any of \{libcudnn",
        cause="cuDNN or cuBLAS could not start: GPU memory is full, or a library of another version was loaded "
        "before "
        "the image's own",
        remedy="make batches smaller to see whether it is memory; else remove other versions: 'unset "
        "LD_LIBRARY_PATH' "
        "before the start, and PYTHONNOUSERSITE=1 against packages below ~/.local",
        source="PyTorch, cuDNN",
        examples=(
            "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}",
        ),
        sure=POSSIBLE,
    ),
)
