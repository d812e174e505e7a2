# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import os
import random
import sys

exchange = ctypes.CDLL(None).renameat2
directory = os.open(sys.argv[1], os.O_RDONLY)
while True:
    for name in sys.argv[2:]:
        exchange(directory, name.encode(), directory, b"link-" + name.encode(), 2)
        for _ in range(random.randrange(3000)):
            pass
