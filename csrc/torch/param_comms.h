/* SPDX-License-Identifier: BSD-3-Clause */
/* The profiler's record_param_comms events, which say what is communicated. */
#ifndef TC_TORCH_PARAM_COMMS_H
#define TC_TORCH_PARAM_COMMS_H

#include "torch/shim.h"

namespace torchcomms {

class TorchCommsBackend;

/* What an event says beside the call itself. */
struct CommsDetails {
    int64_t sequence;
    bool p2p;
    bool async;
    at::ScalarType dtype;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::vector<int64_t> input_splits;
    std::vector<int64_t> output_splits;
};

/* Lasts from its making to its end, both on one thread. */
class ParamComms {
  public:
    ParamComms(const TorchCommsBackend &backend, const tc_call &call,
               const CommsDetails &details);

  private:
    /* The profiler reads it when the event ends. */
    c10::DebugInfoGuard info_;
    at::RecordFunction record_{at::RecordScope::FUNCTION};
};

} // namespace torchcomms

#endif
