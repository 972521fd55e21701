/* SPDX-License-Identifier: BSD-3-Clause */
/* c10d::Backend over a communicator of the core. */
#ifndef TC_TORCH_C10D_BACKEND_H
#define TC_TORCH_C10D_BACKEND_H

#include "torch/c10d_issue.h"
#include "torch/c10d_options.h"

namespace torchcomms {

/* What start_coalescing has gathered. */
struct Coalesced {
    std::vector<tc_p2p> entries;
    std::vector<at::Tensor> tensors;
    std::vector<Copy> copies;
    std::vector<c10::intrusive_ptr<TorchCommsWork>> works;
};

/* Has one communicator for each device type; so far there is the CPU's. */
class TorchCommsBackend : public c10d::Backend {
  public:
    using Tensors = std::vector<at::Tensor>;
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;

    TorchCommsBackend(std::shared_ptr<Comm> comm, std::chrono::milliseconds timeout);

    /* Refuses to go on once the communicator has been reconfigured to other ranks. */
    void
    check_ranks() const;

    const std::string
    getBackendName() const override;
    /* A copy: ProcessGroup::splitGroup writes a child's name and timeout into it. */
    c10::intrusive_ptr<Options>
    getBackendOptions() override;
    c10::intrusive_ptr<BackendOptions>
    own_options() const
    {
        return options_;
    }
    bool
    supportsCoalescing() const override
    {
        return true;
    }
    void
    setTimeout(std::chrono::milliseconds timeout) override;
    void
    shutdown() override;
    void
    abort() override;
    c10d::ErrorType
    getError() override;
    void
    setSequenceNumberForGroup() override
    {
    }
    uint64_t
    getSequenceNumberForGroup() override;
    bool
    supportsTensorAlloc(c10::DeviceIndex index) override;
    at::Tensor
    allocateTensor(long size, at::TensorOptions options = {}) override;
    c10::intrusive_ptr<Backend>
    split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
          const c10::intrusive_ptr<Options> &opts) override;

    WorkPtr
    broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr
    allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr
    allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr
    allreduce_coalesced(Tensors &tensors,
                        const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr
    reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr
    allgather(std::vector<Tensors> &outputs, Tensors &inputs,
              const c10d::AllgatherOptions &opts) override;
    WorkPtr
    _allgather_base(at::Tensor &output, at::Tensor &input,
                    const c10d::AllgatherOptions &opts) override;
    WorkPtr
    allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                        const c10d::AllgatherOptions &opts) override;
    WorkPtr
    allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &opts) override;
    WorkPtr
    gather(std::vector<Tensors> &outputs, Tensors &inputs,
           const c10d::GatherOptions &opts) override;
#ifdef C10D_BACKEND_HAS_HOOKS
    WorkPtr
    gather_single(at::Tensor &output, at::Tensor &input,
                  const c10d::GatherOptions &opts) override;
#endif
    WorkPtr
    scatter(Tensors &outputs, std::vector<Tensors> &inputs,
            const c10d::ScatterOptions &opts) override;
    WorkPtr
    reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                   const c10d::ReduceScatterOptions &opts) override;
    WorkPtr
    _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                         const c10d::ReduceScatterOptions &opts) override;
    WorkPtr
    reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                    const c10d::ReduceScatterOptions &opts) override;
    WorkPtr
    alltoall_base(at::Tensor &output, at::Tensor &input,
                  std::vector<int64_t> &output_splits,
                  std::vector<int64_t> &input_splits,
                  const c10d::AllToAllOptions &opts) override;
    WorkPtr
    alltoall(Tensors &outputs, Tensors &inputs,
             const c10d::AllToAllOptions &opts) override;
    WorkPtr
    barrier(const c10d::BarrierOptions &opts) override;
    void
    monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;
    WorkPtr
    send(Tensors &tensors, int dst, int tag) override;
    WorkPtr
    recv(Tensors &tensors, int src, int tag) override;
    WorkPtr
    recvAnysource(Tensors &tensors, int tag) override;
    void
    startCoalescing() override;
    WorkPtr
    endCoalescing() override;

    Comm &
    comm() const
    {
        return *comm_;
    }
    uint64_t
    next_sequence()
    {
        return ++sequence_;
    }
    uint64_t
    sequence() const
    {
        return sequence_;
    }
    std::chrono::milliseconds
    timeout() const
    {
        return options_->limit();
    }
    Coalesced *
    coalesced()
    {
        return coalesced_.get();
    }
    /* A work that has ended. */
    WorkPtr
    done() const
    {
        return done_;
    }
    /* Refuses a tensor that no communicator takes. */
    void
    check(const at::Tensor &tensor) const;
    std::string
    title(const char *operation) const;
    uint64_t
    global_rank(int rank) const;

  private:
    Tensors
    gather_uneven(const at::Tensor &tensor, int64_t dim,
                  const std::vector<int64_t> &counts,
                  std::chrono::milliseconds timeout);
    WorkPtr
    p2p(Tensors &tensors, tc_op_kind kind, int peer, int tag);

    std::shared_ptr<Comm> comm_;
    c10::intrusive_ptr<BackendOptions> options_;
    WorkPtr done_;
    std::unique_ptr<Coalesced> coalesced_;
    uint64_t sequence_ = 0;
    int32_t barriers_ = 0; /* monitored ones, for their tags */
};

} // namespace torchcomms

#endif
