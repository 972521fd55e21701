# SPDX-License-Identifier: BSD-3-Clause
"""Answers to torch's debug server: status, text and content type.

The shim registers each function under its name. They run on the server's threads.
"""

from __future__ import annotations

import json
import threading
import warnings

from torchcomms.hooks.fr.dump import write_file
from torchcomms.hooks.fr.health import is_healthy
from torchcomms.hooks.fr.recorder import Recorder, shared

_Answer = tuple[int, str, str]
_Parameters = list[tuple[str, str]]

_TEXT = "text/plain"
_JSON = "application/json"
_TRUTH = {"true": True, "false": False}

# Held by the one dump that is being written.
_dumping = threading.Lock()


def torchcomms_fr_trace_json(parameters: _Parameters) -> _Answer:
    """The shared record; `includecollectives` and `onlyactive` are true or false."""
    flags = {"includecollectives": True, "onlyactive": False}
    for name, value in parameters:
        if name not in flags:
            return 400, "Invalid parameters - unexpected param passed in", _TEXT
        if value not in _TRUTH:
            valid = f"Invalid value for {name} valid values are true or false"
            return 400, valid, _TEXT
        flags[name] = _TRUTH[value]
    document = shared().document(
        include_completed=not flags["onlyactive"], entries=flags["includecollectives"]
    )
    return 200, json.dumps(document), _JSON


def _write(recorder: Recorder, rank: int) -> None:
    try:
        write_file(recorder, rank, include_completed=True)
    except Exception as cause:
        warnings.warn(f"no flight recorder dump of rank {rank}: {cause}", stacklevel=1)
    finally:
        _dumping.release()


def torchcomms_fr_dump_file(parameters: _Parameters) -> _Answer:
    """Begins to write the dump of this rank, unless it is being written."""
    recorder = shared()
    if not recorder.was_registered():
        return 503, "Flight Recorder has no communicator registered", _TEXT
    rank = recorder.rank()
    if not _dumping.acquire(blocking=False):
        return 200, f"Flight Recorder dump already in progress for rank {rank}", _TEXT
    writer = threading.Thread(
        target=_write, args=(recorder, rank), name="tc_fr_dump", daemon=True
    )
    try:
        writer.start()
    except RuntimeError:
        _dumping.release()
        raise
    return 200, f"Flight Recorder dump initiated for rank {rank}", _TEXT


def torchcomms_health_check(parameters: _Parameters) -> _Answer:
    """Whether no operation of this process has failed."""
    return 200, json.dumps({"healthy": is_healthy()}), _JSON
