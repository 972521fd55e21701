/* SPDX-License-Identifier: BSD-3-Clause */
/* The dispatcher's queue and thread. */
#include "torch/dispatcher.h"

namespace torchcomms {

namespace {

std::mutex instance_mutex;
Dispatcher *instance; /* guarded by instance_mutex; never freed */

} // namespace

Dispatcher &
Dispatcher::get()
{
    std::lock_guard<std::mutex> lock(instance_mutex);

    if (instance == nullptr || instance->generation_ != core->generation()) {
        instance = new Dispatcher();
    }
    return *instance;
}

Dispatcher::Dispatcher() : generation_(core->generation())
{
    sem_init(&wake_, 0, 0);
    thread_ = std::thread(&Dispatcher::run, this);
    pthread_setname_np(thread_.native_handle(), "tc_futures");
}

void
Dispatcher::push(TorchCommsWork *work)
{
    work->next_ = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(work->next_, work, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
    sem_post(&wake_);
}

void
Dispatcher::settle_all()
{
    TorchCommsWork *newest = head_.exchange(nullptr, std::memory_order_acquire);
    TorchCommsWork *oldest = nullptr;

    while (newest != nullptr) {
        TorchCommsWork *next = newest->next_;

        newest->next_ = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != nullptr) {
        auto work = c10::intrusive_ptr<TorchCommsWork>::reclaim(oldest);

        oldest = work->next_;
        work->settle();
    }
}

void
Dispatcher::run()
{
    while (!stopping_.load(std::memory_order_acquire)) {
        while (sem_wait(&wake_) != 0) {
        }
        settle_all();
        drain_keeps();
    }
}

void
Dispatcher::stop()
{
    std::unique_lock<std::mutex> lock(instance_mutex);
    Dispatcher *dispatcher = instance;

    lock.unlock();
    if (dispatcher == nullptr || dispatcher->generation_ != core->generation()) {
        return;
    }
    dispatcher->stopping_.store(true, std::memory_order_release);
    sem_post(&dispatcher->wake_);
    dispatcher->thread_.join();
    dispatcher->settle_all();
}

} // namespace torchcomms
