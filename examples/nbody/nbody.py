#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All pairs of N bodies that attract each other, timed: on GPUs or, with -cpu, on all cores through NumPy.

The GPU's kernel is CUDA C++ that NVRTC compiles for the GPU that is there. Options, output and the rule for GFLOP/s
(20 for each pair in single precision, 30 in double) are those of NVIDIA's sample of the same name, so that figures can
be compared. Runs with Python 3.6 and newer. `kedge bench nbody` starts this file, too, and reads the lines of -json.
"""

import array
import ctypes
import glob
import json
import math
import os
import random
import sys
import time

USAGE = """nbody -benchmark [options]: times the forces between all pairs of bodies

  -numbodies=N        bodies (default: 1024 for each multiprocessor of a GPU, 4096 with -cpu)
  -i=N, -iterations=N steps that are timed together (default: 10)
  -fp64               double precision
  -numdevices=N       GPUs that share the bodies (default: 1)
  -device=N           the GPU to use (default: 0)
  -cpu                use the CPU's cores through NumPy
  -compare            check one step on the GPU against the CPU, and end
  -repeats=N          how often it is timed (default: 1)
  -warmup=N           steps before the first timing (default: 1)
  -blockSize=N        threads of a block (default: 256)
  -perThread=N        bodies of a thread (default: 4; 1 with -fp64)
  -unroll=N           bodies of a tile that are read at a time (default: 8)
  -json               print one JSON object instead
"""
FLAGS = ("benchmark", "fp64", "cpu", "compare", "json", "fullscreen", "help")
NUMBERS = ("numbodies", "iterations", "numdevices", "device", "repeats", "warmup", "blockSize", "perThread", "unroll")
TIME_STEP, DAMPING, SOFTENING = 0.016, 1.0, 0.1
ARCHITECTURES = {5: "Maxwell", 6: "Pascal", 7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}

# Each thread keeps PER_THREAD bodies in registers, so that one read of a tile serves all of them.
KERNEL = r"""
struct __align__(16) Body { REAL x, y, z, w; };

extern "C" __global__ void __launch_bounds__(THREADS)
step(const Body* __restrict__ old, Body* __restrict__ fresh, Body* __restrict__ speed,
     int first, int count, int bodies, REAL time_step, REAL damping, REAL softening)
{
    __shared__ Body tile[THREADS];
    Body mine[PER_THREAD];
    REAL ax[PER_THREAD], ay[PER_THREAD], az[PER_THREAD];
    const int start = blockIdx.x * (THREADS * PER_THREAD) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        mine[k] = old[first + min(start + k * THREADS, count - 1)];
        ax[k] = ay[k] = az[k] = 0;
    }
    for (int from = 0; from < bodies; from += THREADS) {
        tile[threadIdx.x] = old[from + threadIdx.x];
        __syncthreads();
#pragma unroll UNROLL
        for (int j = 0; j < THREADS; j++) {
            const Body other = tile[j];
#pragma unroll
            for (int k = 0; k < PER_THREAD; k++) {
                const REAL dx = other.x - mine[k].x, dy = other.y - mine[k].y, dz = other.z - mine[k].z;
                const REAL inverse = RSQRT(dx * dx + (dy * dy + (dz * dz + softening)));
                const REAL pull = (other.w * inverse) * (inverse * inverse);
                ax[k] += dx * pull;
                ay[k] += dy * pull;
                az[k] += dz * pull;
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        const int here = start + k * THREADS;
        if (here < count) {
            Body v = speed[first + here];
            v.x = (v.x + ax[k] * time_step) * damping;
            v.y = (v.y + ay[k] * time_step) * damping;
            v.z = (v.z + az[k] * time_step) * damping;
            speed[first + here] = v;
            mine[k].x += v.x * time_step;
            mine[k].y += v.y * time_step;
            mine[k].z += v.z * time_step;
            fresh[first + here] = mine[k];
        }
    }
}
"""


class Problem(Exception):
    """What ends the program: the text for standard output, a remedy for standard error."""

    def __init__(self, text, remedy="", status=1):
        super().__init__(text)
        self.remedy, self.status = remedy, status


class Options:
    """What the command line says."""

    def __init__(self, words):
        for name in FLAGS:
            setattr(self, name, False)
        for name in NUMBERS:
            setattr(self, name, None)
        words = list(words)
        while words:
            word = words.pop(0)
            name, equals, value = word.lstrip("-").partition("=")
            name = "iterations" if name == "i" else name
            if not word.startswith("-") or name not in FLAGS + NUMBERS:
                raise Problem(f"nbody: unknown option {word}", "nbody -help lists all options", 2)
            if name in FLAGS:
                setattr(self, name, True)
                continue
            if not equals:
                value = words.pop(0) if words else ""
            if not value.isdigit():
                raise Problem(f"nbody: -{name} takes a number, such as -{name}=1", "", 2)
            setattr(self, name, int(value))
        self._check()

    def _check(self):
        if self.numdevices is not None and self.device is not None:
            raise Problem("Error: -device names one GPU, and -numdevices several.  Exiting.", "leave out one of them")
        for name in ("numdevices", "iterations", "numbodies", "repeats", "blockSize", "perThread", "unroll"):
            if getattr(self, name) == 0:
                raise Problem(f"Error: -{name} must be at least 1.  Exiting.")
        self.iterations = self.iterations or 10
        self.repeats = self.repeats or 1
        self.warmup = 1 if self.warmup is None else self.warmup
        self.blockSize = self.blockSize or 256
        self.perThread = self.perThread or (1 if self.fp64 else 4)
        self.unroll = self.unroll or 8

    def say(self, text):
        """A line of the report, unless it is JSON."""
        if not self.json:
            print(text)
            sys.stdout.flush()


def round_bodies(options, bodies):
    """The number of bodies that is used: a multiple of the block size."""
    block = options.blockSize
    rounded = (bodies + block - 1) // block * block
    if rounded != bodies:
        options.say(f'Warning: "number of bodies" specified {bodies} is not a multiple of {block}.')
        options.say(f"Rounding up to the nearest multiple: {rounded}.")
    else:
        options.say(f"number of bodies = {bodies}")
    return rounded


def make_bodies(count, fp64):
    """Positions in a ball, each with its mass; the same numbers every time."""
    draw = random.Random(2718).random
    values = array.array("d" if fp64 else "f", bytes(count * (32 if fp64 else 16)))
    mass = 1.0 / count
    for index in range(count):
        radius = draw() ** (1.0 / 3.0)
        height, angle = 2.0 * draw() - 1.0, 2.0 * math.pi * draw()
        width = math.sqrt(1.0 - height * height)
        place = 4 * index
        values[place] = radius * width * math.cos(angle)
        values[place + 1] = radius * width * math.sin(angle)
        values[place + 2] = radius * height
        values[place + 3] = mass
    return values


class Processor:
    """The simulation on this host's cores: NumPy for blocks of bodies, in as many threads as there are cores."""

    def __init__(self, values, fp64):
        self.numpy = import_numpy()
        kind = self.numpy.float64 if fp64 else self.numpy.float32
        self.bodies = self.numpy.array(values, dtype=kind).reshape(-1, 4)
        self.speed = self.numpy.zeros((len(self.bodies), 3), dtype=kind)
        self.threads = len(os.sched_getaffinity(0))

    def accelerate(self, first, last):
        """The accelerations of the bodies from `first` to before `last`."""
        numpy, bodies = self.numpy, self.bodies
        ways = [bodies[None, :, axis] - bodies[first:last, None, axis] for axis in range(3)]
        square = ways[0] * ways[0]
        square += ways[1] * ways[1]
        square += ways[2] * ways[2]
        square += bodies.dtype.type(SOFTENING * SOFTENING)
        inverse = 1 / numpy.sqrt(square)
        pull = bodies[None, :, 3] * inverse * inverse * inverse
        return numpy.stack([(way * pull).sum(axis=1) for way in ways], axis=1)

    def run(self, steps):
        """So many steps; returns the seconds."""
        from concurrent.futures import ThreadPoolExecutor

        count = len(self.bodies)
        size = max(1, min(256, (1 << 16) // count, -(-count // self.threads)))
        blocks = [(first, min(first + size, count)) for first in range(0, count, size)]
        kind = self.bodies.dtype.type
        begin = time.perf_counter()
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in range(steps):
                found = self.numpy.concatenate(list(pool.map(lambda block: self.accelerate(*block), blocks)))
                self.speed = (self.speed + found * kind(TIME_STEP)) * kind(DAMPING)
                self.bodies[:, :3] += self.speed * kind(TIME_STEP)
        return time.perf_counter() - begin

    def read(self):
        """The positions and masses, one after the other."""
        return self.bodies.reshape(-1).tolist()


def import_numpy():
    """NumPy, which only the CPU needs."""
    try:
        import numpy
    except ImportError:
        raise Problem("nbody: this Python has no NumPy, which -cpu needs", "install python3-numpy in the image")
    return numpy


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


def load_nvrtc():
    """NVRTC of the image: of CUDA, or of the packages that come with PyTorch."""
    folders = [""] + [each for path in sys.path for each in glob.glob(path + "/nvidia/*/lib")]
    folders += glob.glob("/usr/local/cuda*/lib64") + glob.glob("/usr/local/cuda*/targets/*/lib")
    for folder in folders:
        if folder:
            names = sorted(each for each in glob.glob(folder + "/libnvrtc.so*") if ".alt." not in each)
        else:
            names = ["libnvrtc.so"] + ["libnvrtc.so." + version for version in ("13", "12", "11.2", "11.1", "11.0")]
        for name in names:
            try:
                for companion in glob.glob(os.path.dirname(name) + "/libnvrtc-builtins.so*") if folder else ():
                    ctypes.CDLL(companion, mode=ctypes.RTLD_GLOBAL)
                return ctypes.CDLL(name)
            except OSError:
                continue
    raise Problem(
        "nbody: libnvrtc is missing in this image: the kernel cannot be compiled",
        "use an image with CUDA's run-time compiler (package cuda-nvrtc) or PyTorch",
    )


def compile_kernel(device, options):
    """The kernel for this GPU: as its machine code, or as PTX where NVRTC is older than the GPU."""
    nvrtc = load_nvrtc()
    macros = {
        "REAL": "double" if options.fp64 else "float",
        "RSQRT": "rsqrt" if options.fp64 else "rsqrtf",
        "THREADS": options.blockSize,
        "PER_THREAD": options.perThread,
    }
    common = ["-D{}={}".format(*pair) for pair in macros.items()] + ["--use_fast_math"]
    log = ""
    for architecture, what in (((device.major, device.minor), "CUBIN"), (None, "PTX")):
        words = list(common)
        if architecture:
            words.append("--gpu-architecture=sm_{}{}".format(*architecture))
        code, log = try_compile(nvrtc, KERNEL.replace("UNROLL", str(options.unroll)), words, what)
        if code:
            return code
    raise Problem("nbody: NVRTC cannot compile the kernel: {}".format(log.strip() or "no reason given"))


def try_compile(nvrtc, text, words, what):
    """The code, or None and what the compiler says."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"nbody.cu", 0, None, None):
        return None, "it cannot be started"
    texts = (ctypes.c_char_p * len(words))(*[word.encode() for word in words])
    status = nvrtc.nvrtcCompileProgram(program, len(words), texts)
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        nvrtc.nvrtcGetProgramLog(program, log)
        return None, log.value.decode(errors="replace")
    try:
        if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) or not size.value:
            return None, f"it gave no {what}"
    except AttributeError:  # CUBIN is known since CUDA 11.1
        return None, f"it knows no {what}"
    code = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, code)
    return code, ""


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


def introduce(options, devices):
    """The lines that say what is about to run where."""
    options.say("> Fullscreen mode" if options.fullscreen else "> Windowed mode")
    options.say("> Simulation data stored in {} memory".format("video" if devices else "system"))
    options.say("> {} precision floating point simulation".format("Double" if options.fp64 else "Single"))
    if not devices:
        options.say("> Simulation with CPU")
        return
    options.say(f"> {len(devices)} Devices used for simulation")
    shown = devices[0]
    line = 'GPU Device {0}: "{1}" with compute capability {2}.{3}\n'
    options.say(line.format(shown.number, shown.architecture, shown.major, shown.minor))
    for each in devices:
        options.say(f"> Compute {each.major}.{each.minor} CUDA device: [{each.name}]")


def run_benchmark(options):
    """Time it and report it."""
    devices = [] if options.cpu else choose_devices(options)
    introduce(options, devices)
    default = 1024 * devices[0].processors * len(devices) if devices else 4096
    bodies = round_bodies(options, options.numbodies or default)
    values = make_bodies(bodies, options.fp64)
    world = Accelerator(devices, values, options) if devices else Processor(values, options.fp64)
    if options.warmup:
        world.run(options.warmup)
    seconds = [world.run(options.iterations) for _ in range(options.repeats)]
    if options.json:
        print_json(options, devices, bodies, seconds)
        return
    for each in seconds:
        print_seconds(options, bodies, each)


def print_seconds(options, bodies, seconds):
    """The three lines of a timing."""
    flops = 30 if options.fp64 else 20
    pairs = 1e-9 * bodies * bodies * options.iterations / seconds
    line = "{0} bodies, total time for {1} iterations: {2:.3f} ms"
    options.say(line.format(bodies, options.iterations, seconds * 1000))
    options.say(f"= {pairs:.3f} billion interactions per second")
    kind = "double" if options.fp64 else "single"
    options.say(f"= {pairs * flops:.3f} {kind}-precision GFLOP/s at {flops} flops per interaction")


def print_json(options, devices, bodies, seconds):
    """One line for programs."""
    document = {
        "kedge": "nbody",
        "device": devices[0].name if devices else "cpu",
        "devices": len(devices),
        "type": "float64" if options.fp64 else "float32",
        "bodies": bodies,
        "iterations": options.iterations,
        "flops": 30 if options.fp64 else 20,
        "seconds": seconds,
    }
    print(json.dumps(document, separators=(",", ":")))


def compare(options):
    """One step on the GPU and on the CPU: the largest distance between the two."""
    devices = choose_devices(options)
    values = make_bodies(round_bodies(options, options.numbodies or 4096), options.fp64)
    worlds = Processor(values, options.fp64), Accelerator(devices, values, options)
    for world in worlds:
        world.run(1)
    largest = max(abs(one - other) for one, other in zip(*[world.read() for world in worlds]))
    limit = 1e-10 if options.fp64 else 1e-5
    line = "{0} bodies after one step: GPU and CPU differ by {1:.1e} at most: {2}"
    print(line.format(len(values) // 4, largest, "good" if largest <= limit else "wrong"))
    return 0 if largest <= limit else 1


def main(words):
    """The exit status."""
    try:
        options = Options(words)
        if options.help:
            print(USAGE, end="")
            return 0
        if options.compare:
            return compare(options)
        if not options.benchmark:
            sys.stderr.write("nbody: there is no window to draw in: running as with -benchmark\n")
        run_benchmark(options)
    except Problem as problem:
        print(problem)
        if problem.remedy:
            sys.stderr.write(f"nbody: {problem.remedy}\n")
        return problem.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
