# SPDX-License-Identifier: BSD-3-Clause
"""Helpers beside the communicators."""
