# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pack-layer REQUEST`: one layer from standard input to parcels on standard output. Conversions call it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import NoReturn

from kedge.image.layers.pack_layer import PackRequest, pack_layer
from kedge.image.layers.parcels import ParcelSender
from kedge.system.piped_worker import INPUT, MEMORY, MESSAGES, REPLIES


def run_pack(words: Sequence[str]) -> NoReturn:
    """Pack the layer and end."""
    request = PackRequest(**json.loads(words[0]))
    pack_layer(request, INPUT, ParcelSender(MESSAGES, REPLIES, MEMORY))
    os._exit(0)  # nothing waits in a buffer
