# SPDX-License-Identifier: BSD-3-Clause
"""The driver, the GPUs that were asked for, and the simulation on one of them or more."""

import array
import ctypes
import time

from kernel import compile_kernel
from options import Problem
from physics import DAMPING, SOFTENING, TIME_STEP

ARCHITECTURES = {5: "Maxwell", 6: "Pascal", 7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}


def choose_devices(options):
    """The GPUs that are asked for; raises Problem where there are fewer."""
    driver = Driver()
    wanted = options.numdevices or 1
    if driver.count < max(wanted, (options.device or 0) + 1):
        if options.device and driver.count:
            text = "Error: device {0} is not among the {1} Devices available.  Exiting."
            raise Problem(text.format(options.device, driver.count), "CUDA_VISIBLE_DEVICES chooses GPUs, too")
        text = f"Error: only {driver.count} Devices available, {wanted} requested.  Exiting."
        remedy = "no GPU is visible: run the container with --nv on a host with a GPU, or use -cpu"
        raise Problem(text, "" if driver.count else remedy)
    first = options.device or 0
    return [Device(driver, number) for number in range(first, first + wanted)]


class Driver:
    """libcuda, which the driver brings along. Its calls raise Problem."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.library, self.count = None, 0
            return
        number = ctypes.c_int()
        works = self.library.cuInit(0) == 0 and self.library.cuDeviceGetCount(ctypes.byref(number)) == 0
        self.count = number.value if works else 0

    def call(self, name, *words):
        """One call."""
        status = getattr(self.library, name)(*words)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise Problem("nbody: {} failed: {}".format(name, (text.value or b"unknown error").decode()))


class Device:
    """One GPU with all bodies, of which it moves its own part."""

    def __init__(self, driver, number):
        self.driver, self.number = driver, number
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(handle), number)
        self.handle = handle
        text = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", text, 256, handle)
        self.name = text.value.decode()
        self.major, self.minor, self.processors = (self.ask(each) for each in (75, 76, 16))
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self.context = context
        self.old = self.fresh = self.speed = self.function = None
        self.first = self.mine = 0

    def ask(self, attribute):
        """A number that describes it."""
        value = ctypes.c_int()
        self.driver.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self.handle)
        return value.value

    @property
    def architecture(self):
        """Its generation, as NVIDIA calls it."""
        if (self.major, self.minor) == (8, 9):
            return "Ada"
        return "Turing" if (self.major, self.minor) == (7, 5) else ARCHITECTURES.get(self.major, "unknown")

    def use(self):
        """The calls that follow are for this GPU."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def fill(self, code, values, first, mine):
        """The compiled kernel and the bodies; it moves `mine` of them from `first` on."""
        self.use()
        self.first, self.mine = first, mine
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.driver.call("cuModuleLoadData", ctypes.byref(module), code)
        self.driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"step")
        self.function = function
        size = len(values) * values.itemsize
        self.old, self.fresh, self.speed = (self.allocate(size) for _ in range(3))
        address, _ = values.buffer_info()
        self.driver.call("cuMemcpyHtoD_v2", self.old, ctypes.c_void_p(address), ctypes.c_size_t(size))
        self.driver.call("cuMemsetD8_v2", self.speed, ctypes.c_ubyte(0), ctypes.c_size_t(size))

    def allocate(self, size):
        """Memory of the GPU."""
        place = ctypes.c_uint64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
        return place

    def start(self, bodies, options):
        """One step; returns at once."""
        self.use()
        kind = ctypes.c_double if options.fp64 else ctypes.c_float
        words = [self.old, self.fresh, self.speed]
        words += [ctypes.c_int(each) for each in (self.first, self.mine, bodies)]
        words += [kind(each) for each in (TIME_STEP, DAMPING, SOFTENING * SOFTENING)]
        places = (ctypes.c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
        blocks = -(-self.mine // (options.blockSize * options.perThread))
        shape = [ctypes.c_uint(each) for each in (blocks, 1, 1, options.blockSize, 1, 1, 0)]
        self.driver.call("cuLaunchKernel", self.function, *(shape + [None, places, None]))

    def wait(self):
        """Until it has done all that was started."""
        self.use()
        self.driver.call("cuCtxSynchronize")

    def give_to(self, other, width):
        """Copy the bodies that this one has moved to another GPU."""
        offset = self.first * width
        target, source = (ctypes.c_uint64(place.value + offset) for place in (other.fresh, self.fresh))
        size = ctypes.c_size_t(self.mine * width)
        self.driver.call("cuMemcpyPeer", target, other.context, source, self.context, size)


class Accelerator:
    """The simulation on one GPU or more."""

    def __init__(self, devices, values, options):
        self.devices, self.options = devices, options
        self.count = len(values) // 4
        self.values = values
        share = -(-self.count // len(devices))
        codes = {}
        for index, device in enumerate(devices):
            kind = (device.major, device.minor)
            if kind not in codes:
                codes[kind] = compile_kernel(device, options)
            first = min(index * share, self.count)
            device.fill(codes[kind], values, first, min(share, self.count - first))

    def run(self, steps):
        """So many steps; returns the seconds."""
        width = 4 * self.values.itemsize
        begin = time.perf_counter()
        for _ in range(steps):
            for device in self.devices:
                device.start(self.count, self.options)
            if len(self.devices) > 1:
                for device in self.devices:
                    device.wait()
                for device in self.devices:
                    for other in self.devices:
                        if other is not device:
                            device.give_to(other, width)
            for device in self.devices:
                device.old, device.fresh = device.fresh, device.old
        for device in self.devices:
            device.wait()
        return time.perf_counter() - begin

    def read(self):
        """The positions and masses, one after the other."""
        device = self.devices[0]
        device.use()
        found = array.array(self.values.typecode, bytes(len(self.values) * self.values.itemsize))
        address, length = found.buffer_info()
        size = ctypes.c_size_t(length * found.itemsize)
        device.driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(address), device.old, size)
        return found.tolist()
