# SPDX-License-Identifier: BSD-3-Clause
"""Communicators for tests in one process: of the fake backend, and two real ranks."""

import pytest
import torch

import torchcomms
from unit.thread_ranks import leave, make_fake, make_ranks

RANK_VARIABLES = (
    "TORCHCOMM_RANK",
    "TORCHCOMM_SIZE",
    "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD",
    "TORCHCOMM_TIMEOUT_SECONDS",
    "TORCHCOMM_ABORT_ON_ERROR",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PALS_RANKID",
    "PALS_SIZE",
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No test depends on the launcher of the tests."""
    for variable in RANK_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def world(monkeypatch):
    """Sets rank and size as torchrun does."""

    def set_world(rank, size):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(size))

    return set_world


@pytest.fixture
def fake():
    """Rank 1 of 3 of the backend that moves nothing."""
    comm = make_fake(1, 3)
    yield comm
    leave([comm])


@pytest.fixture
def alone(world):
    """The only rank of ncclx."""
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="alone")
    yield comm
    leave([comm])


@pytest.fixture
def pair():
    """Two ranks of ncclx."""
    comms = make_ranks(2)
    yield comms
    leave(comms)
