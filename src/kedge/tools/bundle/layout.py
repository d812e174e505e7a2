# SPDX-License-Identifier: BSD-3-Clause
"""What stands where in a bundle, and in the directory it is unpacked to. `head/` has the same names and numbers.

file       the head, with its index filled in; the payload
index      magic, offset and size of the payload, size unpacked, sha256 of the payload
payload    number of blocks, the sizes of each; the blocks, each a deflate stream of its own
block      entries: mode, size, length of the name; the name; the content

so/ld.so              the loader, and beside it every shared library
bin/python3           a head with an empty index: starts the interpreter with that loader
bin/interpreter       Python itself
lib/python3.N/        the standard library, kedge and its packages: compiled, without source
start.pyc             what the interpreter runs: cli/bundle_start.py
files                 digest, size and name of each file: for a look when something went wrong
complete              sizes and names of the files that every start looks at; written last
"""

from __future__ import annotations

import struct

MAGIC = b"kedge-bundle-1\n\0"
INDEX = struct.Struct("<16s3Q32s")
COUNT = struct.Struct("<I")
BLOCK = struct.Struct("<2I")
ENTRY = struct.Struct("<3I")
DIRECTORY, PROGRAM, PLAIN = 0o040700, 0o100700, 0o100600
LIBRARIES, LOADER = "so", "so/ld.so"
PYTHON, INTERPRETER = "bin/python3", "bin/interpreter"
START, FILES, COMPLETE, CERTIFICATES = "start.pyc", "files", "complete", "certificates.pem"
MACHINES = ("x86_64", "aarch64")  # that there is a head for: scripts/build-bundle-head
BLOCK_SIZE = 4 << 20  # of content; a larger file is a block of its own
