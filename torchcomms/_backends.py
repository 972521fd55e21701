# SPDX-License-Identifier: BSD-3-Clause
"""Which backends are installed: entry points of the group `torchcomms.backends`."""

_GROUP = "torchcomms.backends"


def _entry_points():
    # Costs more than the rest of the package together, and only new names need it.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=_GROUP)}


def is_backend_built(backend: str) -> bool:
    """Whether an installed package offers this backend. Loads nothing."""
    return backend in _entry_points()


def built_backends() -> list[str]:
    """The names of the backends that installed packages offer. Loads nothing."""
    return sorted(_entry_points())


def _load_backend(backend: str) -> None:
    """Imports the module that registers this backend."""
    found = _entry_points()
    if backend not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ModuleNotFoundError(
            f"failed to find backend '{backend}': no installed package offers it "
            f"(offered: {known})"
        )
    found[backend].load()
