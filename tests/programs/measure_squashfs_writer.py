# SPDX-License-Identifier: BSD-3-Clause
import os
import resource
import sys

from kedge.base.tree import Node, NodeKind
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter

noise = os.urandom(1 << 20)
with open(sys.argv[1], "w+b") as file, SquashWriter(file, SquashOptions(threads=4)) as writer:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    writer.add_stream(400 << 20, (number.to_bytes(4, "big") + noise[4:] for number in range(400)))
    writer.finish(Node(NodeKind.DIRECTORY))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
