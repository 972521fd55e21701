/* SPDX-License-Identifier: BSD-3-Clause */
/* From tensors to calls of the core: what the operations of the backend share. */
#ifndef TC_TORCH_C10D_ISSUE_H
#define TC_TORCH_C10D_ISSUE_H

#include "torch/c10d_hooks.h"
#include "torch/c10d_work.h"
#include "torch/param_comms.h"
#include "torch/tensor.h"

namespace torchcomms {

class TorchCommsBackend;
struct Coalesced;

/* Fills `redop` and `factor`. */
void
set_redop(const c10d::ReduceOp &op, tc_call *call);

/* One block for each rank, as the core wants it. */
struct Blocks {
    c10::SmallVector<void *, 16> ptrs;
    c10::SmallVector<uint64_t, 16> counts;

    tc_blocks
    get() const
    {
        return {nullptr, 0, ptrs.data(), counts.data()};
    }
};

inline tc_blocks
even_blocks(const at::Tensor &tensor, uint64_t count)
{
    return {tensor.data_ptr(), count, nullptr, nullptr};
}

/* What one call of the backend issues: one operation or, coalesced, several. Tensors
 * that are not plain memory go through memory of ours. */
class Issue {
  public:
    struct How {
        c10d::OpType type;
        const char *title; /* of the profiler's event */
        bool async;
        std::chrono::milliseconds timeout;
    };

    Issue(TorchCommsBackend *backend, const How &how, size_t operations = 1);
    Issue(const Issue &) = delete;
    Issue &
    operator=(const Issue &) = delete;
    ~Issue();

    /* Memory with the tensor's elements in order. */
    at::Tensor
    read(const at::Tensor &tensor);
    /* Memory whose elements end up in the tensor. */
    at::Tensor
    write(const at::Tensor &tensor);
    /* For a tensor that is read and written. */
    at::Tensor
    update(const at::Tensor &tensor);
    /* The same for lists, of `dtype`. */
    void
    read(const std::vector<at::Tensor> &tensors, tc_dtype dtype, Blocks *blocks);
    void
    write(const std::vector<at::Tensor> &tensors, tc_dtype dtype, Blocks *blocks);
    /* Fresh memory for each: outputs that overlap each other or an input. */
    void
    write_apart(const std::vector<at::Tensor> &tensors, tc_dtype dtype, Blocks *blocks);

    void
    run(tc_call *call);
    /* A value of the work, beside what `write` and `update` were given. */
    int32_t *
    source();
    void
    result(const at::Tensor &tensor)
    {
        outputs_.push_back(tensor);
    }

    /* Shown to hooks and by the profiler as an input. */
    void
    note(const at::Tensor &tensor);
    void
    note_splits(const std::vector<int64_t> &inputs,
                const std::vector<int64_t> &outputs);
    /* Instead of `run`, for a send or recv of a batch; `take_from` is the way back. */
    void
    move_to(Coalesced *batch, const tc_call &call);
    void
    take_from(Coalesced *batch);
    /* The result is over when `work` is, too. */
    void
    join(const c10::intrusive_ptr<TorchCommsWork> &work);

    c10::intrusive_ptr<c10d::Work>
    finish();

  private:
    /* For hooks and the profiler: inputs of all operations, and how many tensors
     * earlier ones had. */
    struct Audience {
        bool profiler;
        std::vector<at::Tensor> inputs;
        std::vector<int64_t> input_splits;
        std::vector<int64_t> output_splits;
        size_t shown_inputs = 0;
        size_t shown_outputs = 0;
        std::unique_ptr<ParamComms> event;
    };

    at::Tensor
    stage(const at::Tensor &tensor, bool fill);
    Keep *
    keep();
    Shown
    show();
    void
    announce(const tc_call &call, const Shown &shown);
    bool
    is_profiled() const
    {
        return audience_ != nullptr && audience_->profiler;
    }
    tc_work *
    launch(const tc_call &call);
    static std::unique_ptr<Audience>
    find_audience(const TorchCommsBackend &backend);

    TorchCommsBackend *backend_;
    How how_;
    std::unique_ptr<Audience> audience_; /* NULL where there is none */
    bool inline_wait_;
    uint64_t timeout_ns_;
    Keep *keep_ = nullptr;
    c10::SmallVector<at::Tensor, 4> tensors_;
    c10::SmallVector<tc_work *, 2> works_;
    std::vector<Copy> copies_;
    std::vector<c10::intrusive_ptr<TorchCommsWork>> parts_;
    std::vector<at::Tensor> outputs_;
};

/* Whether a written range touches another; `own` is the place of this rank's block,
 * which may be read and written at the same place. */
bool
touch(const std::vector<at::Tensor> &written, const std::vector<at::Tensor> &read,
      int own);

} // namespace torchcomms

#endif
