# SPDX-License-Identifier: BSD-3-Clause
"""A layer that a process of its own inflates and packs: our end of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

from kedge.base.packed_blocks import Packing
from kedge.errors import LimitReached
from kedge.image.layers.layer_source import LayerSource, count_bytes
from kedge.image.layers.limits import Ledger
from kedge.image.layers.parcels import Parts, receive_parcels
from kedge.system.piped_worker import PipedWorker
from kedge.system.threads import start_thread

PACK_VERB = "pack-layer"  # no user types it
_LIMITS = ("free_expansion", "maximum_ratio", "maximum_entries", "maximum_metadata", "maximum_depth")
_FAREWELL = 0.2  # seconds to wait for the thread that feeds it; it may wait for bytes that do not come


class LayerProcess:
    """Iterates over the parcels of a layer. `close` must be called; `cancel` ends it from another thread.

    OSError where there can be no more processes or threads.
    """

    def __init__(self, layer: LayerSource, ledger: Ledger, packing: Packing | None, threads: int) -> None:
        options = ledger.options
        diff_id = layer.diff_id if options.verify_diff_ids else None
        request = {
            "name": layer.name,
            "diff_id": str(diff_id or ""),
            "codec": packing.codec if packing else "",
            "block_size": packing.block_size if packing else 0,
            "threads": threads,
            "limits": {name: getattr(options, name) for name in _LIMITS},
        }
        self._layer = layer
        self._ledger = ledger
        self._problem: BaseException | None = None  # of the bytes that come to it
        self._is_closed = False
        self._worker = worker = PipedWorker(PACK_VERB, json.dumps(request))
        self._parcels = receive_parcels(worker.messages, worker.replies, worker.memory)
        self._supply = threading.Thread(target=self._feed, name="kedge-supply", daemon=True)
        self._start()

    def _start(self) -> None:
        is_started = False
        try:
            is_started = start_thread(self._supply)
        finally:
            if not is_started:
                self._end()
                if not self._supply.ident:  # else it runs, and closes the file itself
                    os.close(self._worker.input)
        if not is_started:
            raise OSError("no thread may be started")

    def __iter__(self) -> Iterator[Parts]:
        return self

    def __next__(self) -> Parts:
        try:
            parts, inflated = next(self._parcels)
        except BaseException as problem:
            # If the layer itself could not be read, what the process says, or that it says nothing, follows from that:
            # its input is closed after the problem is noted.
            if self._problem is not None:
                raise self._problem from None
            if isinstance(problem, EOFError):
                raise self._explain_death() from None
            raise
        self._ledger.charge_inflated(inflated, f"layer {self._layer.name}")
        return parts

    def _feed(self) -> None:
        """Give the process its layer; on a thread."""
        try:
            compressed = self._layer.open()
            try:
                for chunk in count_bytes(compressed, self._ledger):
                    view = memoryview(chunk)
                    while view:
                        view = view[os.write(self._worker.input, view) :]
            finally:
                close = getattr(compressed, "close", None)
                if close is not None:
                    close()
        except BrokenPipeError:
            pass  # it has ended, and said why
        except BaseException as problem:  # raised again where parcels are read
            self._problem = problem
        finally:
            os.close(self._worker.input)

    def _explain_death(self) -> LimitReached:
        return LimitReached(
            f"the process that inflated layer {self._layer.name} was killed",
            context={"layer": self._layer.name},
            hint="if it was for its memory, try again with --threads 2",
        )

    def cancel(self) -> None:
        """End the process; whoever waits for a parcel gets an error."""
        self._worker.kill()

    def close(self) -> None:
        """End the process and let go of it; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._end()
            self._supply.join(_FAREWELL)

    def _end(self) -> None:
        self._worker.kill()
        self._worker.wait()
