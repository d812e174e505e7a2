# SPDX-License-Identifier: BSD-3-Clause
"""One step on a GPU: the CUDA C++, and its compilation by NVRTC for the GPU that is there."""

import ctypes
import glob
import os
import sys

from options import Problem

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
