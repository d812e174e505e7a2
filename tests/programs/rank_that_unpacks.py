# SPDX-License-Identifier: BSD-3-Clause
import os
import sys
import time

from kedge.image.node.unpack_lock import UnpackLock

place, seconds = sys.argv[1:]
lock = UnpackLock(place, "image")
lock.acquire(print)
if not os.path.exists(f"{place}/ready"):
    print("makes it", flush=True)
    time.sleep(float(seconds))
    open(f"{place}/ready", "w").close()
lock.release()
