/* SPDX-License-Identifier: BSD-3-Clause */
/* The hooks of a communicator around what c10d asks of it. */
#include "torch/c10d_hooks.h"

namespace torchcomms {

HookedCall::HookedCall(tc_comm *comm, const tc_hook_event &event, const Shown &shown)
    : comm_(comm), event_(event), shown_(shown),
      subject_{&HookedCall::get, this, nullptr, nullptr}
{
    pybind11::gil_scoped_acquire gil;
    tc_error err = {};

    event_.face = &subject_;
    tc_status status = core->hooks_begin(comm_, &event_, &err);
    if (status != TC_OK) {
        throw_error(status, err);
    }
}

void
HookedCall::end(tc_work *work, tc_comm *child)
{
    pybind11::gil_scoped_acquire gil;
    tc_error err = {};

    event_.work = work;
    event_.child = child;
    tc_status status = core->hooks_end(comm_, &event_, &err);
    if (status != TC_OK) {
        throw_error(status, err);
    }
}

/* Where c10d gives none, the rows are split evenly. */
std::vector<int64_t>
HookedCall::splits(const std::vector<int64_t> &given,
                   const std::vector<at::Tensor> &of) const
{
    if (!given.empty() || of.empty()) {
        return given;
    }
    int64_t size = core->comm_size(comm_);
    int64_t rows = of[0].dim() > 0 ? of[0].size(0) : 1;

    return std::vector<int64_t>(static_cast<size_t>(size), rows / size);
}

/* NULL without an exception: there is none. */
PyObject *
HookedCall::get(void *ctx, tc_py_part part, bool list)
{
    auto *call = static_cast<HookedCall *>(ctx);
    const Shown &shown = call->shown_;
    const std::vector<at::Tensor> *tensors = nullptr;

    try {
        switch (part) {
        case TC_PY_PART_INPUT:
            tensors = &shown.inputs;
            break;
        case TC_PY_PART_OUTPUT:
            tensors = &shown.outputs;
            break;
        case TC_PY_PART_TENSOR:
            tensors = shown.outputs.empty() ? &shown.inputs : &shown.outputs;
            break;
        case TC_PY_PART_INPUT_SPLITS:
            return pybind11::cast(call->splits(shown.input_splits, shown.inputs))
                .release()
                .ptr();
        case TC_PY_PART_OUTPUT_SPLITS:
            return pybind11::cast(call->splits(shown.output_splits, shown.outputs))
                .release()
                .ptr();
        default:
            return nullptr;
        }
        if (list) {
            return pybind11::cast(*tensors).release().ptr();
        }
        return tensors->empty() ? nullptr : THPVariable_Wrap(tensors->front());
    } catch (pybind11::error_already_set &e) {
        e.restore();
    } catch (const std::exception &e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

std::unique_ptr<HookedCall>
begin_hooks(tc_comm *comm, const tc_hook_event &event, const Shown &shown)
{
    return C10_LIKELY(!core->comm_has_hooks(comm))
               ? nullptr
               : std::make_unique<HookedCall>(comm, event, shown);
}

} // namespace torchcomms
