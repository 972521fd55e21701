/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives of the backend `gloo`. */
#ifndef TC_TORCH_GLOO_P2P_H
#define TC_TORCH_GLOO_P2P_H

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "torch/shim.h"

namespace torchcomms {

class GlooComm;

/* Gloo's own wait for a send or a recv closes every connection when its time is over,
 * cannot be asked without waiting, and the memory of a posted recv can not be taken
 * back. So what is posted (a slot) is apart from what was asked for (a request):
 *
 * - A slot has memory of ours, and a thread that waits for it without a limit.
 * - The messages of one peer and tag go to its requests in the order of both. A request
 *   whose time is over fails alone; its slot stays, and serves the next request.
 * - A small send is finished when it is copied, as long as few are on the way.
 *
 * Slots of one peer are posted one after the other by whichever thread is free: a lazy
 * connection makes the first wait for that peer, and only for it.
 *
 * Invariants. Everything is guarded by `mutex_`, except that `Slot.work` belongs to the
 * thread that posts the slot until it is `posted`. A request's memory is written under
 * the lock, so not after it has failed. */
class GlooP2p {
  public:
    explicit GlooP2p(GlooComm *comm) : comm_(comm)
    {
    }

    /* A send, a recv or a batch. */
    tc_status
    issue(tc_op *op);
    /* No operation is open: forgets what was posted for receiving. True when nothing
     * is on its way to a peer or about to be posted. */
    bool
    leave();
    bool
    has_sends();

  private:
    struct Slot {
        tc_p2p call;
        size_t bytes;
        at::Tensor memory;
        c10::intrusive_ptr<c10d::Work> work;
        tc_op *op = nullptr; /* of a send that somebody waits for */
        uint64_t deadline_ns; /* of a send */
        bool eager = false;
        bool posted = false;
        bool arrived = false;
        bool dropped = false;
        int source = -1;
        tc_error error = {};
    };
    using SlotPtr = std::shared_ptr<Slot>;
    struct Request {
        tc_op *op;
        tc_p2p call;
        size_t bytes;
    };
    using Key = std::pair<int32_t, int32_t>; /* peer and tag */
    struct Inbox {
        std::deque<SlotPtr> slots;
        std::deque<Request> requests;
    };
    /* The way to one peer; `posting` is taken before `mutex_`. */
    struct Lane {
        std::mutex posting;
        std::deque<SlotPtr> waiting;
    };

    tc_status
    check_locked(const tc_op *op, tc_error *err);
    bool
    is_eager_locked(const tc_p2p &call, size_t bytes) const;
    void
    add_locked(tc_op *op, const tc_p2p &call);
    void
    post_locked(const SlotPtr &slot);

    void
    forget_locked(tc_op *op);
    void
    end_locked(tc_op *op, tc_status status);
    void
    part_done_locked(tc_op *op);
    void
    fail_locked(tc_op *op, const tc_error &err);
    void
    expire_locked(tc_op *op);

    void
    give_locked(const Request &request, const Slot &slot);
    void
    deliver_locked(Inbox *inbox);
    void
    slot_ended_locked(const SlotPtr &slot);
    void
    drop_locked(const SlotPtr &slot);
    uint64_t
    look_locked(uint64_t now_ns);

    static void
    run_slots(GlooComm *comm);
    void
    serve();
    void
    carry(Lane *lane);
    void
    post(Slot *slot);
    bool
    await(Slot *slot);
    static void
    run_clock(GlooComm *comm);
    void
    watch();

    GlooComm *const comm_;
    std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable clock_;
    std::map<Key, Inbox> inboxes_;
    std::map<int32_t, Lane> lanes_;
    std::deque<Lane *> jobs_; /* one for each slot that waits to be posted */
    std::vector<SlotPtr> sends_; /* that are not over */
    std::vector<tc_op *> open_; /* operations that have not ended */
    size_t eager_bytes_ = 0;
    size_t idle_ = 0; /* threads without a slot */
    size_t posting_ = 0;
    bool watching_ = false;
    bool leaving_ = false;
};

} // namespace torchcomms

#endif
