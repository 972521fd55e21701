# SPDX-License-Identifier: BSD-3-Clause
"""Lines on stdout, and on a terminal the progress below them."""

import sys


class _Counter:
    """The progress where tqdm is not installed: one line that is written over."""

    def __init__(self, total):
        self._total, self._done, self._title = total, 0, ""

    def _draw(self):
        text = f"{self._done}/{self._total} {self._title}"
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()

    def set_description(self, title):
        self._title = title
        self._draw()

    def update(self):
        self._done += 1
        self._draw()

    def clear(self):
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()

    refresh = _draw
    close = clear


def _progress(total):
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return _Counter(total)
    return tqdm(total=total, unit="row", leave=False, mininterval=0)


class Screen:
    """Where people look; with `silent` nothing is shown."""

    def __init__(self, total, silent=False):
        self._silent = silent
        self._bar = None if silent else _progress(total)

    def begin(self, title):
        if self._bar is not None:
            self._bar.set_description(title)

    def show(self, line):
        if self._silent:
            return
        if self._bar is not None:
            self._bar.clear()
        print(line, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def step(self):
        if self._bar is not None:
            self._bar.update()

    def close(self):
        if self._bar is not None:
            self._bar.close()
