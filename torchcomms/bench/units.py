# SPDX-License-Identifier: BSD-3-Clause
"""Sizes and times as people write and read them."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text):
    """Bytes of "8", "64K", "1M" or "2G"."""
    number, unit = text.strip(), ""
    if number and number[-1].upper() in "KMG":
        number, unit = number[:-1], number[-1].upper()
    if not number.isdecimal():
        raise ValueError(f"'{text}' is no size: 8, 64K, 1M, 2G are")
    return int(number) * _UNITS[unit]


def show_size(nbytes):
    for unit in "GMK":
        if nbytes and nbytes % _UNITS[unit] == 0:
            return f"{nbytes // _UNITS[unit]}{unit}"
    return str(nbytes)


def show_microseconds(us):
    if us < 100:
        return f"{us:.2f}"
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"
