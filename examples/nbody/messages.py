# SPDX-License-Identifier: BSD-3-Clause
"""What nbody prints, in the words of NVIDIA's sample; -json is a line of its own."""

import json


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
