/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms._backend_wrapper: what Python sees of the shim. */
#include "torch/c10d_backend.h"
#include "torch/dispatcher.h"
#include "torch/gloo.h"
#include "torch/handlers.h"
#include "torch/tensor.h"

namespace py = pybind11;

namespace torchcomms {

namespace {

std::atomic<bool> closed{false};

/* torchcomms._c10d looks for it before it loads the file. */
__attribute__((used)) const char mark[] = "torchcomms-shim-built-for:" TORCH_VERSION;

void
at_exit()
{
    gloo_at_exit();
    closed.store(true);
    Dispatcher::stop();
}

void
connect()
{
    py::object module = py::module_::import("torchcomms._core");
    py::object capsule = module.attr(TC_CAPI_ATTRIBUTE);

    core =
        static_cast<const tc_capi *>(PyCapsule_GetPointer(capsule.ptr(), TC_CAPI_NAME));
    if (core == nullptr) {
        throw py::error_already_set();
    }
    if (core->struct_size < sizeof(tc_capi)) {
        throw py::import_error(
            "torchcomms._core is older than the c10d shim: build both "
            "from the same tree");
    }
    core_ctx = PyCapsule_GetContext(capsule.ptr());
    core->set_exit(core_ctx, at_exit);
    core->set_view(core_ctx, view_plain);
}

c10::intrusive_ptr<TorchCommsBackend>
wrap(const py::object &comm)
{
    tc_py_hold *hold = core->comm_hold_object(core_ctx, comm.ptr());

    if (hold == nullptr) {
        throw py::error_already_set();
    }
    auto held = std::make_shared<Comm>(hold);

    check_configured(*held);
    return c10::make_intrusive<TorchCommsBackend>(std::move(held),
                                                  std::chrono::seconds(600));
}

c10::intrusive_ptr<TorchCommsBackend>
create(const std::string &backend, const std::string &name,
       const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
       std::chrono::milliseconds timeout, std::vector<uint64_t> global_ranks)
{
    auto made = c10::make_intrusive<TorchCommsBackend>(
        create_comm(backend, name, store, rank, size, timeout), timeout);

    made->own_options()->global_ranks_in_group = std::move(global_ranks);
    return made;
}

/* As CommOptions: the environment, as it is now, gives the default. */
c10::intrusive_ptr<BackendOptions>
make_options()
{
    auto options = c10::make_intrusive<BackendOptions>();

    options->abort_process = py::module_::import("torchcomms._core")
                                 .attr("_option")("TORCHCOMM_ABORT_ON_ERROR")
                                 .cast<bool>();
    return options;
}

c10::intrusive_ptr<BackendOptions>
copy_options(const BackendOptions &options)
{
    return c10::make_intrusive<BackendOptions>(options);
}

/* Read-only, so that nobody writes into what is a copy. */
py::object
show_hints(const BackendOptions &options)
{
    return py::module_::import("types").attr("MappingProxyType")(
        py::cast(options.hints));
}

bool
verify_timeout(const TorchCommsBackend &, const c10::intrusive_ptr<c10d::Work> &work,
               std::chrono::milliseconds timeout)
{
    auto *ours = dynamic_cast<TorchCommsWork *>(work.get());

    TORCH_CHECK(ours != nullptr, "Work is not a WorkWrapper");
    return ours->timeout_ns() == to_ns(timeout);
}

py::object
get_comm(const TorchCommsBackend &backend)
{
    PyObject *comm = core->comm_object(core_ctx, backend.comm().peek());

    if (comm == nullptr) {
        throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(comm);
}

py::object
get_mem_allocator(const TorchCommsBackend &backend)
{
    return get_comm(backend).attr("get_mem_allocator")();
}

} // namespace

bool
is_closed()
{
    return closed.load(std::memory_order_relaxed);
}

} // namespace torchcomms

PYBIND11_MODULE(_backend_wrapper, m)
{
    using namespace torchcomms;

    m.doc() = "The c10d face of torchcomms, built for one version of torch.";
    m.attr("built_for") = TORCH_VERSION;
    connect();
    py::module_::import("torch._C._distributed_c10d");
    register_handlers();
    py::class_<BackendOptions, c10d::Backend::Options,
               c10::intrusive_ptr<BackendOptions>>(m, "_BackendWrapperOptions")
        .def(py::init(&make_options))
        .def("__copy__", &copy_options)
        .def("__deepcopy__", [](const BackendOptions &options,
                                const py::dict &) { return copy_options(options); })
        .def_readonly("backend", &BackendOptions::backend)
        .def_readwrite("abort_process_on_timeout_or_error",
                       &BackendOptions::abort_process)
        .def_property("timeout", &BackendOptions::limit, &BackendOptions::set_limit,
                      "Of operations; `_timeout` is c10d's field.")
        .def_readwrite("is_high_priority_stream", &BackendOptions::high_priority)
        .def_readwrite("store", &BackendOptions::store)
        .def_property(
            "hints", &show_hints,
            [](BackendOptions &options, std::map<std::string, std::string> hints) {
                options.hints = std::move(hints);
            });
    py::class_<TorchCommsWork, c10d::Work, c10::intrusive_ptr<TorchCommsWork>>(
        m, "WorkWrapper");
    py::class_<TorchCommsBackend, c10d::Backend, c10::intrusive_ptr<TorchCommsBackend>>(
        m, "_BackendWrapper")
        .def(py::init(&wrap), py::arg("comm"))
        .def_property_readonly("options", &TorchCommsBackend::own_options)
        .def("_set_default_timeout", &TorchCommsBackend::setTimeout, py::arg("timeout"))
        .def("_verify_work_timeout", &verify_timeout, py::arg("work"),
             py::arg("timeout"), "Whether the work was issued with this timeout.")
        .def("get_comm", &get_comm,
             "The one TorchComm of the communicator behind this backend.")
        .def("get_mem_allocator", &get_mem_allocator,
             "The MemAllocator of the communicator behind this backend.")
        .def_property_readonly("mem_allocator", &get_mem_allocator);
    m.def("_register_gloo", &register_gloo, "Makes the backend gloo known.");
    m.def("_create", &create, py::arg("backend"), py::arg("name"), py::arg("store"),
          py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("global_ranks"),
          "A backend over a new communicator; nothing is read from the environment.");
}
