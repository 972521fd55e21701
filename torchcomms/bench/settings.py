# SPDX-License-Identifier: BSD-3-Clause
"""What a group of ranks is to measure; goes to them as JSON."""

import dataclasses
import json

AUTO, ON, OFF = "auto", "on", "off"
ROTATIONS = (AUTO, ON, OFF)


@dataclasses.dataclass
class Settings:
    ops: list
    sizes: list
    dtypes: list
    backends: list  # of torchcomms; the first is the one that peers are compared with
    peers: list = dataclasses.field(default_factory=list)
    seconds: float = 0.4  # for a row
    iters: int | None = None  # calls of a burst
    rotate: str = AUTO

    @classmethod
    def of(cls, options, peers):
        """From the command line."""
        known = [f.name for f in dataclasses.fields(cls) if f.name != "peers"]
        return cls(**{name: getattr(options, name) for name in known}, peers=peers)

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        return cls(**json.loads(text))
