# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1, 5: modules, names, metaclass; backend objects, optional operations."""

import gc
import subprocess
import sys
import types

import pytest
import torch

import torchcomms
from torchcomms import _comms, _core
from unit.thread_ranks import make_fake

ALL = (
    "new_comm TorchComm ReduceOp TorchWork Timeout BatchP2POptions BatchSendRecv P2POp "
    "CommOptions TorchCommWindow register_backend TorchCommBackend"
).split()
OPAQUE = ("TorchComm", "TorchCommWindow", "BatchSendRecv", "ReduceOp", "Timeout")


def test_all_in_order():
    assert torchcomms.__all__ == ALL


@pytest.mark.parametrize("name", ALL)
def test_module_of_a_name(name):
    thing = getattr(torchcomms, name)
    assert thing.__module__ == "torchcomms"
    thing.__module__ = "torchcomms"  # accepted


def test_what_is_public_in_comms_is_an_attribute_of_the_package():
    for name, thing in vars(_comms).items():
        if not name.startswith("_") and not isinstance(thing, types.ModuleType):
            assert getattr(torchcomms, name) is thing
    for name in (
        "RedOpType OpName WorkStatus get_mem_allocator ReconfigureOptions "
        "TorchCommWinAccessType is_backend_built built_backends _load_backend hooks "
        "objcol"
    ).split():
        assert hasattr(torchcomms, name), name
    assert not hasattr(torchcomms, "_is_backend_registered")
    assert not hasattr(torchcomms, "_BackendWrapper")
    assert hasattr(_comms, "_BackendWrapper")
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'"):
        _ = torchcomms.nothing_like_it


# The metaclass ------------------------------------------------------------------------


def metaclass():
    return pytest.importorskip("torchcomms._opaque_meta").OpaqueBaseMeta


def test_metaclass():
    for name in OPAQUE:
        assert type(getattr(torchcomms, name)) is metaclass(), name
    gc.collect()


ORDERS = {
    "torch first": "import torch, torchcomms",
    "torchcomms first": "import torchcomms, torch",
    "a module of torchcomms first": "import torchcomms._comms, torch, torchcomms",
}


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize("order", ORDERS)
def test_metaclass_in_both_orders_and_opaque(order, autoload):
    """torch registers the classes as opaque types, whoever was imported first."""
    program = f"""
{ORDERS[order]}
from torchcomms._opaque_meta import OpaqueBaseMeta
from torch._library.opaque_object import register_opaque_type
for name in {OPAQUE}:
    cls = getattr(torchcomms, name)
    assert type(cls) is OpaqueBaseMeta, name
    register_opaque_type(cls, typ="reference")
    cls.added = name  # class attributes are writable
    assert cls.added == name
comm = torchcomms.new_comm("fake", torch.device("cpu"), name="x")
assert isinstance(comm, torchcomms.TorchComm)
assert not isinstance(5, torchcomms.TorchComm)
comm.all_reduce(torch.ones(2), torchcomms.ReduceOp.SUM, timeout=torchcomms.Timeout(1))
comm.finalize()
"""
    metaclass()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_metaclass_is_set_where_it_fits_only():
    class Meta(type):
        pass

    class Plain:
        pass

    assert _core._set_metaclass(Plain, Meta) is None
    assert type(Plain) is Meta
    for cls, meta in ((Plain, Meta), (int, Meta), (type("P", (), {}), int)):
        with pytest.raises(TypeError, match="cannot become the metaclass"):
            _core._set_metaclass(cls, meta)
    with pytest.raises(TypeError):
        _core._set_metaclass(5, Meta)


# Names whose feature is not there yet, and optional operations ------------------------


def test_windows_and_python_backends_say_that_they_are_not_there():
    with pytest.raises(TypeError, match="cannot create 'TorchCommWindow' instances"):
        torchcomms.TorchCommWindow()

    class Mine(torchcomms.TorchCommBackend):
        def __init__(self):
            super().__init__()

    with pytest.raises(RuntimeError, match="register_backend not implemented"):
        torchcomms.register_backend("mine", Mine)
    assert not _comms._is_backend_registered("mine")
    with pytest.raises(TypeError, match="subclass of torchcomms.TorchCommBackend"):
        torchcomms.register_backend("mine", int)
    with pytest.raises(TypeError, match="name must be a str"):
        torchcomms.register_backend(5, Mine)


def test_methods_that_a_python_backend_does_not_override():
    """api.md 11: raise at the call, not at construction."""
    backend = torchcomms.TorchCommBackend()
    for name in ("init", "all_reduce", "split", "get_rank", "get_comm_name"):
        with pytest.raises(RuntimeError, match=f"pure virtual function .*::{name}"):
            getattr(backend, name)()
    assert backend.set_timeout(None) is None


def test_backend_object():
    """api.md 5: the same object at each call, also after finalize."""
    comm = make_fake(1, 3, name="one")
    backend = comm.get_backend_impl()
    assert isinstance(backend, torchcomms.TorchCommBackend)
    assert comm.get_backend_impl() is backend
    with pytest.warns(DeprecationWarning, match="get_backend_impl"):
        assert comm.unsafe_get_backend() is backend
    comm.finalize()
    assert comm.get_backend_impl() is backend
    assert (backend.get_rank(), backend.get_size()) == (1, 3)
    assert (backend.get_backend_name(), backend.get_comm_name()) == ("fake", "one")
    other = make_fake(0, 1)
    assert other.get_backend_impl() is not backend
    other.finalize()
    del comm, other
    with pytest.raises(RuntimeError, match="pure virtual function"):
        backend.get_rank()


def test_class_of_the_backend(alone):
    from torchcomms._comms_ncclx import TorchCommNCCLX

    assert isinstance(alone.get_backend_impl(), TorchCommNCCLX)


OPTIONAL = {
    "tensor_register": lambda comm: comm.tensor_register(torch.ones(1)),
    "tensor_deregister": lambda comm: comm.tensor_deregister(tensor=torch.ones(1)),
    "get_device_transport": lambda comm: comm.get_device_transport(),
    "all_gather_p_init": lambda comm: comm.all_gather_p_init(torch.ones(3), {}, None),
    "all_gather_p_exec": lambda comm: comm.all_gather_p_exec(0, torch.ones(1), True),
    "all_gather_p_free": lambda comm: comm.all_gather_p_free(handle=0),
    "new_window": lambda comm: comm.new_window(),
}


@pytest.mark.parametrize("operation", OPTIONAL)
def test_optional_operations(fake, alone, operation):
    """api.md 5: they name the operation in the spelling of the contract."""
    for comm in (fake, alone):
        wanted = f"^{operation} not implemented for communicator:{comm.get_name()}$"
        with pytest.raises(RuntimeError, match=wanted):
            OPTIONAL[operation](comm)


def test_arguments_of_optional_operations(fake):
    for call, text in (
        (lambda: fake.tensor_register(), "missing required argument 'tensor'"),
        (lambda: fake.new_window(tensors=1), "unexpected keyword argument 'tensors'"),
        (lambda: fake.all_gather_p_exec(0), "missing required argument 'input'"),
        (lambda: fake.get_backend_impl(1), "takes at most 0 positional"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
