# SPDX-License-Identifier: BSD-3-Clause
"""Times of the collectives, ours beside a peer's: `python -m torchcomms.bench`."""
