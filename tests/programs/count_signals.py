# SPDX-License-Identifier: BSD-3-Clause
import os
import signal
import time

signal.signal(signal.SIGINT, lambda *_: os.write(1, b"got "))
os.write(1, b"ready ")
end = time.monotonic() + 0.8
while time.monotonic() < end:
    time.sleep(0.05)
os.write(1, b"done ")
