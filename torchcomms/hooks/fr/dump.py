# SPDX-License-Identifier: BSD-3-Clause
"""Writes the record where torch's analyser looks for it."""

from __future__ import annotations

import os
import pickle
import threading
from typing import Any

from torchcomms import _core
from torchcomms.hooks.fr.recorder import Recorder

_UNKNOWN_IF_0 = ("time_discovered_started_ns", "time_discovered_completed_ns")

_prefix: str | None = None


def _default_prefix() -> str:
    cache = _core._option("XDG_CACHE_HOME")
    if not cache:
        home = _core._option("HOME") or os.path.expanduser("~")
        cache = os.path.join(home, ".cache")
    return os.path.join(cache, "torch", "comm_lib_trace_rank_")


def file_name(rank: int) -> str:
    """The prefix is decided by the first dump of the process, unless each is to ask."""
    global _prefix
    given = _core._option("TORCHCOMM_FR_DUMP_TEMP_FILE")
    if given and _core._option("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME"):
        return given
    if _prefix is None:
        _prefix = given or _default_prefix()
    return f"{_prefix}{rank}"


def _for_pickle(entry: dict[str, Any]) -> dict[str, Any]:
    entry["process_group"] = tuple(entry["process_group"])
    for key in _UNKNOWN_IF_0:
        entry[key] = entry[key] or None
    return entry


def write_file(recorder: Recorder, rank: int, include_completed: bool) -> str:
    """Who reads the file while it is written sees the former one, or none."""
    document = recorder.document(include_completed)
    document["entries"] = [_for_pickle(e) for e in document.get("entries", ())]
    path = file_name(rank)
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    # A name that no prefix is found in, should it be left behind.
    mine = f".{os.getpid()}.{threading.get_native_id()}.part"
    partial = os.path.join(folder, mine)
    try:
        with open(partial, "wb") as file:
            pickle.dump(document, file, protocol=2)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
    return path
