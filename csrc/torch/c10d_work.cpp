/* SPDX-License-Identifier: BSD-3-Clause */
/* c10d::Work: waiting, results, futures. */
#include "torch/c10d_work.h"

#include "torch/dispatcher.h"

namespace torchcomms {

/* Tensors that are let go of ------------------------------------------------------- */

namespace {

std::atomic<Keep *> left_behind{nullptr};
std::atomic<bool> drain_scheduled{false};

int
drain_when_called(void *)
{
    drain_keeps();
    return 0;
}

/* Any thread, with locks of the core held: a push is all that is safe here. Without a
 * free place for the call the next use of this module makes up for it. */
void
keep_release(void *ptr)
{
    auto *keep = static_cast<Keep *>(ptr);

    if (keep->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return;
    }
    keep->next = left_behind.load(std::memory_order_relaxed);
    while (!left_behind.compare_exchange_weak(
        keep->next, keep, std::memory_order_release, std::memory_order_relaxed)) {
    }
    if (!is_closed() && Py_IsInitialized() && !drain_scheduled.exchange(true) &&
        Py_AddPendingCall(drain_when_called, nullptr) != 0) {
        drain_scheduled.store(false);
    }
}

} // namespace

void
Keep::unref()
{
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

void
drain_keeps()
{
    if (left_behind.load(std::memory_order_relaxed) == nullptr) {
        return;
    }
    drain_scheduled.store(false);
    Keep *keep = left_behind.exchange(nullptr, std::memory_order_acquire);
    while (keep != nullptr) {
        Keep *next = keep->next;

        delete keep;
        keep = next;
    }
}

void
run_copies(const std::vector<Copy> &copies)
{
    if (copies.empty()) {
        return;
    }
    at::AutoDispatchBelowADInplaceOrView guard;
    for (const Copy &copy : copies) {
        copy.to.copy_(copy.from);
    }
}

/* The work ------------------------------------------------------------------------- */

TorchCommsWork::TorchCommsWork(int rank, c10d::OpType type, const Event &event,
                               uint64_t sequence, uint64_t timeout_ns)
    : Work(rank, type, event.title,
           event.title != nullptr
               ? std::optional<std::vector<at::Tensor>>(*event.inputs)
               : std::nullopt),
      sequence_(sequence), timeout_ns_(timeout_ns), generation_(core->generation())
{
}

TorchCommsWork::~TorchCommsWork()
{
    /* At exit, and in a forked child, the core's objects are not ours to touch. */
    if (!is_closed() && !is_foreign()) {
        for (tc_work *work : works_) {
            core->work_release(work);
        }
        if (keep_ != nullptr) {
            keep_->unref();
        }
        drain_keeps();
    }
}

void
TorchCommsWork::begin(Keep *keep, std::vector<Copy> &&copies,
                      std::vector<at::Tensor> &&outputs)
{
    keep_ = keep;
    copies_ = std::move(copies);
    outputs_ = std::move(outputs);
    if (!copies_.empty() && !works_.empty()) {
        std::lock_guard<std::mutex> lock(mutex_);

        watch();
    } else {
        settle();
    }
}

void
TorchCommsWork::add(tc_work *work)
{
    works_.push_back(work);
}

void
Keep::own(tc_work *work)
{
    refs.fetch_add(1, std::memory_order_relaxed);
    core->work_set_owner(work, {this, keep_release});
}

void
TorchCommsWork::join(const c10::intrusive_ptr<TorchCommsWork> &part)
{
    std::lock_guard<std::mutex> lock(part->mutex_);

    for (tc_work *work : part->works_) {
        core->work_retain(work);
        works_.push_back(work);
    }
    parts_.push_back(part);
}

bool
TorchCommsWork::has_ended_locked() const
{
    for (tc_work *work : works_) {
        if (core->work_get_state(work) == TC_WORK_INPROGRESS) {
            return false;
        }
    }
    return true;
}

/* The first error is the work's. */
void
TorchCommsWork::collect_locked(Failed *failed)
{
    for (tc_work *work : works_) {
        tc_error err = {};
        tc_status status = core->work_result(work, &err);

        if (status != TC_OK && exception_ == nullptr) {
            how_ = status == TC_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT
                                            : c10d::WorkResult::COMM_ERROR;
            exception_ = to_exception(status, err);
        }
        /* At exit it may be the last reference to a communicator without an engine. */
        if (!is_closed() && status != TC_OK) {
            failed->push_back(work);
        } else if (!is_closed()) {
            core->work_release(work);
        }
    }
    works_.clear();
    for (const auto &part : parts_) {
        part->settle(failed);
        if (part->exception_ != nullptr && exception_ == nullptr) {
            how_ = part->how_;
            exception_ = part->exception_;
        }
    }
    parts_.clear();
    if (exception_ == nullptr) {
        try {
            run_copies(copies_);
        } catch (...) {
            how_ = c10d::WorkResult::UNKNOWN;
            exception_ = std::current_exception();
        }
    }
    copies_.clear();
}

namespace {

void
complete(const c10::intrusive_ptr<c10::ivalue::Future> &future,
         const std::exception_ptr &exception, const std::vector<at::Tensor> &outputs)
{
    if (exception != nullptr) {
        future->setError(exception);
    } else {
        future->markCompleted(c10::IValue(outputs));
    }
}

} // namespace

bool
TorchCommsWork::settle(Failed *failed)
{
    if (settled_.load(std::memory_order_acquire)) {
        return true;
    }
    if (is_foreign()) {
        return false;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (settled_.load(std::memory_order_relaxed)) {
        return true;
    }
    if (!has_ended_locked()) {
        return false;
    }
    Failed own;

    collect_locked(failed != nullptr ? failed : &own);
    std::function<void()> end_event;
    end_event.swap(recordFunctionEndCallback_);
    settled_.store(true, std::memory_order_release);
    auto future = future_;
    auto status_future = status_future_;
    lock.unlock();
    /* Callbacks run without a lock. */
    for (tc_work *work : own) {
        core->hooks_work_ended(work);
        core->work_release(work);
    }
    if (end_event) {
        end_event();
    }
    if (future) {
        complete(future, exception_, outputs_);
    }
    if (status_future) {
        status_future->markCompleted(c10::IValue(static_cast<int64_t>(how_)));
    }
    return true;
}

bool
TorchCommsWork::isCompleted()
{
    return settle();
}

bool
TorchCommsWork::isSuccess() const
{
    return const_cast<TorchCommsWork *>(this)->settle() && exception_ == nullptr;
}

std::exception_ptr
TorchCommsWork::exception() const
{
    return const_cast<TorchCommsWork *>(this)->settle() ? exception_ : nullptr;
}

int
TorchCommsWork::sourceRank() const
{
    std::lock_guard<std::mutex> lock(mutex_);

    return keep_ != nullptr ? keep_->source : -1;
}

std::vector<at::Tensor>
TorchCommsWork::result()
{
    return outputs_;
}

void
TorchCommsWork::synchronize()
{
    wait(kNoTimeout);
}

bool
TorchCommsWork::wait(std::chrono::milliseconds timeout)
{
    c10::SmallVector<tc_work *, 2> works;
    tc_status left_with = TC_OK;
    tc_error err = {};

    TORCH_CHECK_WITH(DistBackendError,
                     settled_.load(std::memory_order_acquire) || !is_foreign(),
                     "a work is waited for in a forked child of its process");
    if (!settled_.load(std::memory_order_acquire)) {
        std::lock_guard<std::mutex> lock(mutex_);

        /* Another thread may come to the end first and let go. */
        for (tc_work *work : works_) {
            core->work_retain(work);
            works.push_back(work);
        }
    }
    if (!works.empty()) {
        SignalWatch watch;
        uint64_t limit_ns = timeout == kNoTimeout ? UINT64_MAX : to_ns(timeout);
        auto begin = std::chrono::steady_clock::now();

        for (tc_work *work : works) {
            core->work_waits(core_ctx, work);
        }
        for (tc_work *work : works) {
            uint64_t left_ns = limit_ns;

            if (limit_ns != UINT64_MAX) {
                uint64_t used_ns = static_cast<uint64_t>(
                    (std::chrono::steady_clock::now() - begin).count());
                left_ns = used_ns < limit_ns ? limit_ns - used_ns : 0;
            }
            if (left_with == TC_OK) {
                tc_status status = core->work_wait(work, left_ns, watch.get(), &err);

                if (status == TC_INTERRUPTED || status == TC_EXPIRED) {
                    left_with = status;
                }
            }
        }
        for (tc_work *work : works) {
            core->work_release(work);
        }
    }
    drain_keeps();
    if (left_with == TC_EXPIRED && !settle()) {
        C10_THROW_ERROR(DistBackendError,
                        c10::str("Operation timed out! The wait of ", timeout.count(),
                                 " ms ran out; the operation goes on"));
    }
    if (left_with == TC_INTERRUPTED) {
        throw_error(left_with, err);
    }
    settle();
    if (exception_ != nullptr) {
        std::rethrow_exception(exception_);
    }
    return true;
}

void
TorchCommsWork::abort()
{
    TORCH_CHECK(false, "a single work cannot be aborted: abort the process group");
}

/* Futures -------------------------------------------------------------------------- */

void
TorchCommsWork::one_ended(void *ptr)
{
    auto *work = static_cast<TorchCommsWork *>(ptr);

    if (work->left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        work->dispatcher_->push(work);
    }
}

/* Gives the dispatcher a reference, which it gets when all works have ended. */
void
TorchCommsWork::watch()
{
    if (watched_) {
        return;
    }
    watched_ = true;
    dispatcher_ = &Dispatcher::get();
    auto self = c10::intrusive_ptr<TorchCommsWork>::unsafe_reclaim_from_nonowning(this);
    self.release();
    left_.store(static_cast<uint32_t>(works_.size()) + 1, std::memory_order_relaxed);
    watches_.assign(works_.size(), {one_ended, this, nullptr});
    for (size_t i = 0; i < works_.size(); i++) {
        core->work_on_end(works_[i], &watches_[i]);
    }
    one_ended(this);
}

c10::intrusive_ptr<c10::ivalue::Future>
TorchCommsWork::getFuture()
{
    bool ended = settle();
    TORCH_CHECK_WITH(DistBackendError, ended || !is_foreign(),
                     "a future is asked for in a forked child of its work's process");
    std::unique_lock<std::mutex> lock(mutex_);

    if (!future_) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()));
        ended = settled_.load(std::memory_order_relaxed);
        if (ended) {
            lock.unlock();
            complete(future_, exception_, outputs_);
        } else {
            watch();
        }
    }
    return future_;
}

c10::intrusive_ptr<c10::ivalue::Future>
TorchCommsWork::getFutureResult()
{
    std::unique_lock<std::mutex> lock(mutex_);

    if (!status_future_) {
        status_future_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
        if (settled_.load(std::memory_order_relaxed)) {
            lock.unlock();
            status_future_->markCompleted(c10::IValue(static_cast<int64_t>(how_)));
        } else {
            watch();
        }
    }
    return status_future_;
}

uint64_t
TorchCommsWork::getSequencenumber() const
{
    return sequence_;
}

} // namespace torchcomms
