#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Says which devices the driver, TensorFlow, PyTorch, JAX and Caffe see: the first thing to try in a new image.

Needs no framework: what is not installed is named. The exit code is 1 if a framework is installed and sees no GPU,
or with `--gpu N` if the driver does not offer GPU N.
"""

import argparse
import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys

_MAJOR, _MINOR, _UNITS, _CLOCK = 75, 76, 16, 13  # CUdevice_attribute


class Driver:
    """CUDA's driver, by its own library: what every framework asks below."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        status = self._library.cuInit(0)
        if status:
            raise OSError(f"cuInit failed with CUDA error {status}")

    def version(self):
        """The newest CUDA that this driver runs."""
        number = ctypes.c_int()
        self._library.cuDriverGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def count(self):
        """How many GPUs it offers this process."""
        number = ctypes.c_int()
        self._library.cuDeviceGetCount(ctypes.byref(number))
        return number.value

    def describe(self, number):
        """Lines about a GPU, as `caffe device_query` gives them."""
        device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(100)
        self._library.cuDeviceGet(ctypes.byref(device), number)
        self._library.cuDeviceGetName(name, len(name), device)
        self._library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        facts = [self._ask(each, device) for each in (_MAJOR, _MINOR, _UNITS, _CLOCK)]
        return {
            "Device id": number,
            "Name": name.value.decode(),
            "Compute capability": f"{facts[0]}.{facts[1]}",
            "Total global memory": f"{memory.value} bytes ({memory.value / 2**30:.1f} GiB)",
            "Number of multiprocessors": facts[2],
            "Clock rate": f"{facts[3] / 1000:.0f} MHz",
        }

    def _ask(self, attribute, device):
        value = ctypes.c_int()
        self._library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        return value.value


def ask_driver(wanted):
    """Print the driver's GPUs; whether those that were asked for are there."""
    try:
        driver = Driver()
    except OSError as problem:
        print(f"CUDA driver: not usable ({problem})")
        if not os.path.exists("/dev/nvidiactl"):
            print("No NVIDIA GPU is visible. On a node with a GPU, add --nv: kedge exec --nv IMAGE …")
        return wanted is None
    count = driver.count()
    print(f"CUDA driver: CUDA {driver.version()}, {count} GPUs")
    if wanted is not None and wanted >= count:
        print(f"GPU {wanted} is not there")
        return False
    for number in range(count) if wanted is None else [wanted]:
        for name, value in driver.describe(number).items():
            print(f"  {name + ':':28}{value}")
    return True


def ask_tensorflow():
    """Version, devices, and a product of two small matrices: 22 28 49 64. Returns the number of GPUs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tensorflow = importlib.import_module("tensorflow")
    print(f"Tensorflow version: {tensorflow.__version__}")
    found = tensorflow.config.list_physical_devices("GPU")
    print(f"GPU available: {bool(found)}\n\nGPUs:")
    for device in found:
        print(f"Name: {device.name}   Type: {device.device_type}")
    left = tensorflow.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    right = tensorflow.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    print(f"\nTNA= {left}\nTNB= {right}\nTNAxTNB= {tensorflow.matmul(left, right)}")
    return len(found)


def ask_torch():
    """Version, devices, and the same product."""
    torch = importlib.import_module("torch")
    print(f"PyTorch version: {torch.__version__} (CUDA {torch.version.cuda or 'none'})")
    found = torch.cuda.device_count()
    print(f"GPU available: {torch.cuda.is_available()}")
    for number in range(found):
        print(f"Name: cuda:{number}   {torch.cuda.get_device_name(number)}")
    device = "cuda" if found else "cpu"
    left = torch.arange(1.0, 7.0, device=device).reshape(2, 3)
    print(f"product on {device}: {(left @ left.reshape(3, 2)).tolist()}")
    return found


def ask_jax():
    """Version and devices."""
    jax = importlib.import_module("jax")
    print(f"JAX version: {jax.__version__}")
    found = jax.devices()
    print(f"devices: {', '.join(str(each) for each in found)}")
    return sum(each.platform != "cpu" for each in found)


def ask_caffe():
    """What `caffe device_query -gpu all` says."""
    if shutil.which("caffe") is None:
        raise ImportError("caffe")
    done = subprocess.run(["caffe", "device_query", "-gpu", "all"], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    print("\n".join(line.partition("] ")[2] or line for line in lines))
    return sum(bool(re.search(r"Device id", line)) for line in lines)


FRAMEWORKS = {"TensorFlow": ask_tensorflow, "PyTorch": ask_torch, "JAX": ask_jax, "Caffe": ask_caffe}


def main():
    """Ask all; 1 if one that is installed sees no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-gpu", "--gpu", type=int, metavar="N", help="only GPU N")
    parser.add_argument("--only", choices=FRAMEWORKS, action="append", help="only this framework; repeatable")
    options = parser.parse_args()
    is_right = ask_driver(options.gpu)
    blind = []
    for name in options.only or FRAMEWORKS:
        try:
            print(f"\n{name}")
            if not FRAMEWORKS[name]():
                blind.append(name)
        except ImportError:
            print("not installed")
    if blind:
        print(f"\n{', '.join(blind)}: sees no GPU")
    return 0 if is_right and not blind else 1


if __name__ == "__main__":
    sys.exit(main())
