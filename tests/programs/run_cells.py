# SPDX-License-Identifier: BSD-3-Clause
"""Starts a kernel with the real jupyter_client, runs the cells that are arguments, interrupts a sleep, and ends it.

Prints JSON: what each cell printed, seconds until the kernel was ready, how the sleep ended, and whether it lives.
"""

import json
import sys
import threading
import time

from jupyter_client.manager import KernelManager

manager = KernelManager(kernel_name=sys.argv[1])
begin = time.monotonic()
manager.start_kernel()
client = manager.client()
client.start_channels()
try:
    client.wait_for_ready(timeout=90)
    ready = time.monotonic() - begin
    printed = []
    for cell in sys.argv[2:]:
        texts: list[str] = []
        reply = client.execute_interactive(
            cell, timeout=60, output_hook=lambda message, texts=texts: texts.append(message["content"].get("text", ""))
        )
        printed.append("".join(texts) if reply["content"]["status"] == "ok" else str(reply["content"]))
    threading.Timer(1, manager.interrupt_kernel).start()
    begin = time.monotonic()
    interrupted = client.execute_interactive("import time; time.sleep(50)", timeout=60)["content"].get("ename", "")
    waited = time.monotonic() - begin
finally:
    client.stop_channels()
    manager.shutdown_kernel()
print(
    json.dumps(
        {
            "printed": printed,
            "ready": ready,
            "interrupted": interrupted,
            "waited": waited,
            "lives": manager.is_alive(),
        }
    )
)
