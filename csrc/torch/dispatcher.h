/* SPDX-License-Identifier: BSD-3-Clause */
/* The one thread that completes futures of works nobody waits for. */
#ifndef TC_TORCH_DISPATCHER_H
#define TC_TORCH_DISPATCHER_H

#include <semaphore.h>

#include <thread>

#include "torch/c10d_work.h"

namespace torchcomms {

/* Starts with the first work that is watched; woken by the thread that ends one. */
class Dispatcher {
  public:
    /* Of this process; a forked child has its own. */
    static Dispatcher &
    get();
    /* Settles what has ended and joins the thread, if there is one. */
    static void
    stop();

    /* Takes over a reference. Lock-free, from any thread. */
    void
    push(TorchCommsWork *work);

  private:
    Dispatcher();
    void
    run();
    void
    settle_all();

    std::atomic<TorchCommsWork *> head_{nullptr};
    std::atomic<bool> stopping_{false};
    sem_t wake_;
    uint32_t generation_;
    std::thread thread_;
};

} // namespace torchcomms

#endif
