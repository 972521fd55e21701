/* SPDX-License-Identifier: BSD-3-Clause */
/* c10d::Work over works of the core, and what keeps their tensors alive. */
#ifndef TC_TORCH_C10D_WORK_H
#define TC_TORCH_C10D_WORK_H

#include <atomic>

#include "torch/shim.h"

namespace torchcomms {

class Dispatcher;

/* The tensors of operations in flight. Held by the c10d::Work and by each tc_work,
 * whose last reference may go on any thread, while tensors are let go of on a thread
 * that can take the GIL: see keep_release. */
struct Keep {
    std::vector<at::Tensor> tensors;
    int32_t source = -1;
    std::atomic<uint32_t> refs{1};
    Keep *next = nullptr;

    void
    unref();
    /* Stays until the work, too, is gone. */
    void
    own(tc_work *work);
};

/* A result that was received in memory of ours, and where it belongs. */
struct Copy {
    at::Tensor to;
    at::Tensor from;
};

void
run_copies(const std::vector<Copy> &copies);

/* Lets go of what other threads left behind. */
void
drain_keeps();

/* Invariants. `works_`, `keep_`, `copies_`, `future_` and `exception_` are guarded by
 * `mutex_` of the base class. Once `settled_`, `works_` and `copies_` are empty and
 * nothing but `future_` changes. `left_` counts works that have not ended, plus one
 * until the dispatcher watches all of them. */
class TorchCommsWork : public c10d::Work {
  public:
    /* Of the profiler; `title` is NULL without one. */
    struct Event {
        const char *title;
        const std::vector<at::Tensor> *inputs;
    };

    TorchCommsWork(int rank, c10d::OpType type, const Event &event, uint64_t sequence,
                   uint64_t timeout_ns);
    ~TorchCommsWork() override;

    /* For the issuer, before anybody else sees it. `work` is a reference that is taken
     * over; its tensors are those of `keep`. */
    void
    add(tc_work *work);
    /* Ends with `part`, which finishes itself. */
    void
    join(const c10::intrusive_ptr<TorchCommsWork> &part);
    /* What an operation that ended at once left. */
    void
    begin(Keep *keep, std::vector<Copy> &&copies, std::vector<at::Tensor> &&outputs);

    bool
    isCompleted() override;
    bool
    isSuccess() const override;
    std::exception_ptr
    exception() const override;
    int
    sourceRank() const override;
    std::vector<at::Tensor>
    result() override;
    void
    synchronize() override;
    bool
    wait(std::chrono::milliseconds timeout) override;
    void
    abort() override;
    c10::intrusive_ptr<c10::ivalue::Future>
    getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future>
    getFutureResult() override;
    uint64_t
    getSequencenumber() const override;

    uint64_t
    timeout_ns() const
    {
        return timeout_ns_;
    }

    /* Finishes what has ended: errors, copies, the future. False while it goes on. */
    bool
    settle()
    {
        return settle(nullptr);
    }

  private:
    friend class Dispatcher;

    /* In a forked child, where the core's objects are not ours to touch. */
    bool
    is_foreign() const
    {
        return generation_ != core->generation();
    }
    bool
    has_ended_locked() const;
    /* References to works that have failed, for the abort hooks. */
    using Failed = c10::SmallVector<tc_work *, 2>;

    /* Leaves failures to `failed`; NULL: runs the hooks. */
    bool
    settle(Failed *failed);
    void
    collect_locked(Failed *failed);
    void
    watch();
    static void
    one_ended(void *ptr);

    c10::SmallVector<tc_work *, 2> works_;
    c10::SmallVector<tc_work_watch, 2> watches_; /* of works_, once watched */
    Keep *keep_ = nullptr;
    std::vector<Copy> copies_;
    std::vector<c10::intrusive_ptr<TorchCommsWork>> parts_;
    std::vector<at::Tensor> outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    c10::intrusive_ptr<c10::ivalue::Future> status_future_;
    std::atomic<uint32_t> left_{1};
    Dispatcher *dispatcher_ = nullptr;
    TorchCommsWork *next_ = nullptr; /* of the dispatcher's queue */
    uint64_t sequence_;
    uint64_t timeout_ns_;
    uint32_t generation_;
    c10d::WorkResult how_ = c10d::WorkResult::SUCCESS;
    std::atomic<bool> settled_{false};
    bool watched_ = false;
};

} // namespace torchcomms

#endif
