/* SPDX-License-Identifier: BSD-3-Clause */
/* The hooks of a communicator around what c10d asks of it. */
#ifndef TC_TORCH_C10D_HOOKS_H
#define TC_TORCH_C10D_HOOKS_H

#include "torch/shim.h"

namespace torchcomms {

/* The tensors and splits of one operation, as the user gave them. */
struct Shown {
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::vector<int64_t> input_splits;
    std::vector<int64_t> output_splits;
};

/* From the pre-hooks to the post-hooks, which run when the operation has not failed.
 * Both throw what a hook raises. */
class HookedCall {
  public:
    /* `event` has the kind and what there is of a call or split. */
    HookedCall(tc_comm *comm, const tc_hook_event &event, const Shown &shown);
    HookedCall(const HookedCall &) = delete;
    HookedCall &
    operator=(const HookedCall &) = delete;

    void
    end(tc_work *work, tc_comm *child);

  private:
    static PyObject *
    get(void *ctx, tc_py_part part, bool list);
    std::vector<int64_t>
    splits(const std::vector<int64_t> &given, const std::vector<at::Tensor> &of) const;

    tc_comm *comm_;
    tc_hook_event event_;
    const Shown &shown_;
    tc_py_subject subject_;
};

/* Of a call that may have hooks: NULL where it has none. */
std::unique_ptr<HookedCall>
begin_hooks(tc_comm *comm, const tc_hook_event &event, const Shown &shown);

} // namespace torchcomms

#endif
