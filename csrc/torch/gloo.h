/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend `gloo`: torch's ProcessGroupGloo behind the core's table. */
#ifndef TC_TORCH_GLOO_H
#define TC_TORCH_GLOO_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "torch/gloo_p2p.h"

namespace torchcomms {

/* Makes `gloo` known to the core. [GIL] */
void
register_gloo();

/* Waits, without the GIL, for sends that their communicator's end left on the way. */
void
gloo_at_exit();

/* One communicator. Collectives run one after the other, in the order of their issue,
 * on a thread of its own; sends and receives beside them, see GlooP2p.
 *
 * Invariants. `queue_`, `threads_`, `leaving_` and `lingers_` are guarded by `mutex_`.
 * `group_` is set before anybody else sees the object and dropped by `close`, when no
 * thread of it is left. */
class GlooComm : public std::enable_shared_from_this<GlooComm> {
  public:
    GlooComm(const tc_comm_config *config, c10::intrusive_ptr<c10d::Backend> group,
             pybind11::object parts);
    ~GlooComm();

    tc_status
    issue(tc_op *op);
    /* No operation is in flight. Returns at once; what is on the way to a peer is
     * carried on by the threads. */
    void
    finalize();

    int
    rank() const
    {
        return rank_;
    }
    int
    size() const
    {
        return size_;
    }
    const std::string &
    name() const
    {
        return name_;
    }
    c10d::Backend &
    group() const
    {
        return *group_;
    }
    const tc_host *
    host() const
    {
        return host_;
    }
    uint64_t
    next_split()
    {
        return ++splits_;
    }
    /* Of torchcomms._comms_gloo, which made it. [GIL] */
    const pybind11::object &
    parts() const
    {
        return *parts_;
    }

    /* A thread that `finalize` knows of; refuses by an exception. */
    void
    start_thread(void (*body)(GlooComm *comm));

    bool
    is_left()
    {
        std::lock_guard<std::mutex> lock(mutex_);

        return leaving_;
    }
    bool
    has_sends()
    {
        return p2p_.has_sends();
    }

  private:
    static void
    run_queue(GlooComm *comm);
    void
    serve();
    tc_status
    run(tc_op *op);
    void
    thread_ended();
    void
    close();

    const int rank_;
    const int size_;
    const std::string name_;
    const tc_host *host_;
    c10::intrusive_ptr<c10d::Backend> group_;
    std::unique_ptr<pybind11::object> parts_;
    std::atomic<uint64_t> splits_{0};

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable ended_;
    std::deque<tc_op *> queue_;
    int threads_ = 0;
    bool leaving_ = false;
    bool lingers_ = false; /* the last thread closes it */
    std::atomic<bool> serving_{false}; /* the queue has its thread */
    std::string broken_; /* of the queue's thread: why, once a collective has failed */

    friend class GlooP2p;
    GlooP2p p2p_{this};
};

/* gloo_collectives.cpp ------------------------------------------------------------- */

/* Refuses what gloo, or the pair of dtype and reduction, does not have. */
tc_status
check_gloo_call(const tc_call &call, tc_error *err);

/* Carries a collective to its end; throws. */
void
run_gloo_collective(GlooComm *comm, const tc_call &call,
                    std::chrono::milliseconds timeout);

/* gloo_error.cpp ------------------------------------------------------------------- */

const char *
gloo_op_name(tc_op_kind kind);

/* Calls `body`; what it throws becomes a status with the text of `what`. */
tc_status
guard_gloo(const std::string &what, tc_error *err, const std::function<void()> &body);

/* What is left until the operation's deadline, at least 1 ms; gloo takes that as "at
 * once" and fails, as it should. */
std::chrono::milliseconds
gloo_time_left(const tc_op *op);

/* In `state` of an accepted operation. */
struct GlooOpState {
    uint64_t deadline_ns;
    uint64_t parts_left; /* of a batch, a send or a recv */
};

inline GlooOpState *
gloo_state(const tc_op *op)
{
    return reinterpret_cast<GlooOpState *>(const_cast<uint64_t *>(op->state));
}

} // namespace torchcomms

#endif
