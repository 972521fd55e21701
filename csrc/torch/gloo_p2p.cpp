/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives over gloo: slots that wait without a limit, requests that do not.
 */
#include "torch/gloo_p2p.h"

#include "base/clock.h"
#include "torch/gloo.h"
#include "torch/tensor.h"

namespace torchcomms {

namespace {

constexpr size_t kEagerBytes = 16 * 1024; /* of one send, as of the native engine */
constexpr size_t kEagerRoom = 1024 * 1024; /* of all that are on the way */
/* Longer than any process lives; gloo adds it to a clock in nanoseconds. */
constexpr std::chrono::hours kForever(24 * 365 * 10);

size_t
bytes_of(const tc_p2p &call)
{
    return call.count * c10::elementSize(to_scalar_type(call.dtype));
}

tc_status
refuse_busy(const tc_p2p &call, size_t posted, size_t wanted, tc_error *err)
{
    err->status = TC_ERR_INVALID_ARGUMENT;
    snprintf(err->message, sizeof(err->message),
             "recv of %zu bytes from rank %d with tag %d: a recv before it has timed "
             "out, and gloo still keeps %zu bytes ready for that message",
             wanted, call.peer, call.tag, posted);
    return err->status;
}

constexpr int64_t kTags = 1 << 30;

/* Gloo takes no negative tags; monitoredBarrier's are the lowest there are. Out of
 * range for any other tag that does not fit. */
int64_t
tag_for_gloo(int32_t tag)
{
    return tag >= 0 ? 2 * int64_t{tag} : 2 * (int64_t{tag} - INT32_MIN) + 1;
}

tc_status
refuse_tag(int32_t tag, tc_error *err)
{
    err->status = TC_ERR_INVALID_ARGUMENT;
    snprintf(err->message, sizeof(err->message),
             "tag must be in range [0, %lld) with gloo, but got %d",
             static_cast<long long>(kTags), tag);
    return err->status;
}

/* The sends and receives of an operation. */
std::vector<tc_p2p>
parts_of(const tc_call &call)
{
    if (call.kind == TC_OP_BATCH) {
        return {call.batch, call.batch + call.batch_count};
    }
    void *buf = call.kind == TC_OP_SEND ? const_cast<void *>(call.in) : call.out;

    return {{call.kind, call.dtype, call.root, call.tag, call.count, buf}};
}

} // namespace

/* Issue ---------------------------------------------------------------------------- */

/* A slot that nobody waits for has its size already. */
tc_status
GlooP2p::check_locked(const tc_op *op, tc_error *err)
{
    std::map<Key, size_t> seen;

    for (const tc_p2p &call : parts_of(op->call)) {
        if (tag_for_gloo(call.tag) >= 2 * kTags) {
            return refuse_tag(call.tag, err);
        }
        if (call.kind == TC_OP_SEND) {
            continue;
        }
        Key key(call.peer, call.tag);
        auto found = inboxes_.find(key);
        size_t place = seen[key]++;

        if (found == inboxes_.end()) {
            continue;
        }
        place += found->second.requests.size();
        if (place < found->second.slots.size() &&
            found->second.slots[place]->bytes != bytes_of(call)) {
            return refuse_busy(call, found->second.slots[place]->bytes, bytes_of(call),
                               err);
        }
    }
    return TC_OK;
}

bool
GlooP2p::is_eager_locked(const tc_p2p &call, size_t bytes) const
{
    return call.kind == TC_OP_SEND && bytes <= kEagerBytes &&
           eager_bytes_ + bytes <= kEagerRoom;
}

void
GlooP2p::post_locked(const SlotPtr &slot)
{
    Lane *lane = &lanes_[slot->call.peer];

    /* A thread for each slot that is not over, since each waits for its own. */
    if (idle_ <= jobs_.size()) {
        comm_->start_thread(run_slots);
        idle_++;
    }
    lane->waiting.push_back(slot);
    jobs_.push_back(lane);
    work_.notify_one();
}

void
GlooP2p::add_locked(tc_op *op, const tc_p2p &call)
{
    size_t bytes = bytes_of(call);
    Inbox *inbox =
        call.kind == TC_OP_RECV ? &inboxes_[Key(call.peer, call.tag)] : nullptr;

    if (inbox != nullptr && inbox->requests.size() < inbox->slots.size()) {
        inbox->requests.push_back({op, call, bytes});
        return;
    }
    auto slot = std::make_shared<Slot>();

    slot->call = call;
    slot->bytes = bytes;
    slot->deadline_ns = gloo_state(op)->deadline_ns;
    slot->memory = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
    if (inbox != nullptr) {
        post_locked(slot);
        inbox->slots.push_back(slot);
        inbox->requests.push_back({op, call, bytes});
        return;
    }
    if (bytes > 0) {
        memcpy(slot->memory.mutable_data_ptr(), call.buf, bytes);
    }
    post_locked(slot);
    sends_.push_back(slot);
    if (is_eager_locked(call, bytes)) {
        eager_bytes_ += bytes;
        slot->eager = true;
        gloo_state(op)->parts_left--;
    } else {
        slot->op = op;
    }
}

tc_status
GlooP2p::issue(tc_op *op)
{
    std::vector<tc_p2p> parts = parts_of(op->call);
    std::lock_guard<std::mutex> lock(mutex_);
    tc_status status = check_locked(op, op->error);

    if (status != TC_OK) {
        return status;
    }
    /* One part more, so that nothing ends it before it is accepted. */
    gloo_state(op)->parts_left = parts.size() + 1;
    open_.push_back(op);
    status = guard_gloo(gloo_op_name(op->call.kind), op->error, [&] {
        if (!watching_) {
            comm_->start_thread(run_clock);
            watching_ = true;
        }
        for (const tc_p2p &part : parts) {
            add_locked(op, part);
        }
    });
    if (status != TC_OK || --gloo_state(op)->parts_left == 0) {
        forget_locked(op);
        return status;
    }
    clock_.notify_one();
    /* Slots of requests that have failed may be full already. */
    for (const tc_p2p &part : parts) {
        if (part.kind == TC_OP_RECV) {
            deliver_locked(&inboxes_[Key(part.peer, part.tag)]);
        }
    }
    return TC_PENDING;
}

/* Ends ----------------------------------------------------------------------------- */

/* Nothing refers to the operation, nor to its memory, any more. */
void
GlooP2p::forget_locked(tc_op *op)
{
    for (const SlotPtr &slot : sends_) {
        if (slot->op == op) {
            slot->op = nullptr;
        }
    }
    for (auto &[key, inbox] : inboxes_) {
        auto &all = inbox.requests;

        all.erase(std::remove_if(all.begin(), all.end(),
                                 [&](const Request &r) { return r.op == op; }),
                  all.end());
    }
    open_.erase(std::remove(open_.begin(), open_.end(), op), open_.end());
}

void
GlooP2p::end_locked(tc_op *op, tc_status status)
{
    forget_locked(op);
    comm_->host()->complete(op, status);
}

void
GlooP2p::part_done_locked(tc_op *op)
{
    if (--gloo_state(op)->parts_left == 0) {
        end_locked(op, TC_OK);
    }
}

void
GlooP2p::fail_locked(tc_op *op, const tc_error &err)
{
    *op->error = err;
    end_locked(op, err.status);
}

/* Slots ---------------------------------------------------------------------------- */

void
GlooP2p::give_locked(const Request &request, const Slot &slot)
{
    tc_error err = slot.error;

    if (err.status == TC_OK && request.bytes != slot.bytes) {
        refuse_busy(request.call, slot.bytes, request.bytes, &err);
        err.status = TC_ERR_MISMATCH;
    }
    if (err.status != TC_OK) {
        fail_locked(request.op, err);
        return;
    }
    if (slot.bytes > 0) {
        memcpy(request.call.buf, slot.memory.const_data_ptr(), slot.bytes);
    }
    if (request.op->call.source != nullptr) {
        *request.op->call.source = slot.source;
    }
    part_done_locked(request.op);
}

/* Messages that have come to requests that wait, both in their order. A connection that
 * failed fails all that wait for it, and the next recv finds that out anew. */
void
GlooP2p::deliver_locked(Inbox *inbox)
{
    while (!inbox->slots.empty() && !inbox->requests.empty() &&
           inbox->slots.front()->arrived) {
        SlotPtr slot = inbox->slots.front();
        Request request = inbox->requests.front();

        inbox->slots.pop_front();
        inbox->requests.pop_front();
        give_locked(request, *slot);
    }
}

void
GlooP2p::slot_ended_locked(const SlotPtr &slot)
{
    if (slot->call.kind == TC_OP_RECV) {
        slot->arrived = true;
        deliver_locked(&inboxes_[Key(slot->call.peer, slot->call.tag)]);
        return;
    }
    sends_.erase(std::remove(sends_.begin(), sends_.end(), slot), sends_.end());
    eager_bytes_ -= slot->eager ? slot->bytes : 0;
    if (slot->op != nullptr && slot->error.status != TC_OK) {
        fail_locked(slot->op, slot->error);
    } else if (slot->op != nullptr) {
        tc_op *op = slot->op;

        slot->op = nullptr;
        part_done_locked(op);
    }
    clock_.notify_one();
}

void
GlooP2p::post(Slot *slot)
{
    std::vector<at::Tensor> tensors = {slot->memory};
    const tc_p2p &call = slot->call;
    int tag = static_cast<int>(tag_for_gloo(call.tag));

    if (call.kind == TC_OP_SEND) {
        slot->work = comm_->group().send(tensors, call.peer, tag);
    } else if (call.peer == TC_ANY_SOURCE) {
        slot->work = comm_->group().recvAnysource(tensors, tag);
    } else {
        slot->work = comm_->group().recv(tensors, call.peer, tag);
    }
}

/* Waits until it is over; false when it was dropped. */
bool
GlooP2p::await(Slot *slot)
{
    /* False comes from `abort`, which may have been meant for an earlier wait. */
    while (!slot->work->wait(kForever)) {
        std::lock_guard<std::mutex> lock(mutex_);

        if (slot->dropped) {
            return false;
        }
    }
    if (slot->call.kind == TC_OP_RECV) {
        slot->source = slot->work->sourceRank();
    }
    return true;
}

void
GlooP2p::carry(Lane *lane)
{
    std::unique_lock<std::mutex> posting(lane->posting);
    std::unique_lock<std::mutex> lock(mutex_);
    SlotPtr slot = lane->waiting.front();
    bool over = slot->dropped;

    lane->waiting.pop_front();
    posting_ += over ? 0 : 1;
    lock.unlock();
    if (over) {
        return;
    }
    std::string what = std::string(gloo_op_name(slot->call.kind)) +
                       (slot->call.kind == TC_OP_SEND ? " to rank " : " from rank ") +
                       std::to_string(slot->call.peer) + " of communicator '" +
                       comm_->name() + "'";
    tc_error err = {};
    tc_status status = guard_gloo(what, &err, [&] { post(slot.get()); });

    posting.unlock();
    lock.lock();
    posting_--;
    slot->posted = status == TC_OK;
    over = slot->dropped;
    lock.unlock();
    if (over) {
        return;
    }
    if (status == TC_OK) {
        guard_gloo(what, &err, [&] { over = !await(slot.get()); });
    }
    lock.lock();
    if (!over) {
        slot->error = err;
        slot_ended_locked(slot);
    }
}

void
GlooP2p::run_slots(GlooComm *comm)
{
    comm->p2p_.serve();
}

void
GlooP2p::serve()
{
    std::unique_lock<std::mutex> lock(mutex_);

    for (;;) {
        work_.wait(lock, [&] { return leaving_ || !jobs_.empty(); });
        idle_--;
        if (jobs_.empty()) {
            return;
        }
        Lane *lane = jobs_.front();

        jobs_.pop_front();
        lock.unlock();
        carry(lane);
        lock.lock();
        idle_++;
    }
}

/* Time ----------------------------------------------------------------------------- */

void
GlooP2p::expire_locked(tc_op *op)
{
    tc_error err = {};

    err.status = TC_ERR_TIMEOUT;
    snprintf(err.message, sizeof(err.message),
             "%s of communicator '%s' timed out after %.3f s",
             gloo_op_name(op->call.kind), comm_->name().c_str(),
             static_cast<double>(op->timeout_ns) / TC_NSEC_PER_SEC);
    if (op->call.kind == TC_OP_SEND || op->call.kind == TC_OP_RECV) {
        size_t used = strlen(err.message);

        snprintf(err.message + used, sizeof(err.message) - used, " (%s rank %d)",
                 op->call.kind == TC_OP_SEND ? "to" : "from", op->call.root);
    }
    fail_locked(op, err);
}

void
GlooP2p::drop_locked(const SlotPtr &slot)
{
    if (!slot->dropped) {
        slot->dropped = true;
        if (slot->posted) {
            slot->work->abort();
        }
    }
}

/* Ends what is over at `now_ns`; the next time to look. */
uint64_t
GlooP2p::look_locked(uint64_t now_ns)
{
    uint64_t next = TC_DEADLINE_NONE;

    for (tc_op *op : std::vector<tc_op *>(open_)) {
        if (gloo_state(op)->deadline_ns <= now_ns) {
            expire_locked(op);
        } else {
            next = std::min(next, gloo_state(op)->deadline_ns);
        }
    }
    for (const SlotPtr &slot : std::vector<SlotPtr>(sends_)) {
        if (!leaving_) {
            break;
        }
        if (slot->deadline_ns <= now_ns) {
            drop_locked(slot);
            sends_.erase(std::find(sends_.begin(), sends_.end(), slot));
        } else {
            next = std::min(next, slot->deadline_ns);
        }
    }
    return next;
}

void
GlooP2p::run_clock(GlooComm *comm)
{
    comm->p2p_.watch();
}

void
GlooP2p::watch()
{
    std::unique_lock<std::mutex> lock(mutex_);

    while (!leaving_ || !sends_.empty()) {
        uint64_t now = tc_clock_ns();
        uint64_t next = look_locked(now);

        if (leaving_ && sends_.empty()) {
            break;
        }
        /* An hour, where there is nothing to wait for: a wait needs some number. */
        next = std::min(next, now + 3600 * TC_NSEC_PER_SEC);
        clock_.wait_for(lock, std::chrono::nanoseconds(next - now));
    }
}

bool
GlooP2p::leave()
{
    std::lock_guard<std::mutex> lock(mutex_);

    leaving_ = true;
    for (auto &[key, inbox] : inboxes_) {
        for (const SlotPtr &slot : inbox.slots) {
            drop_locked(slot);
        }
        inbox.slots.clear();
    }
    look_locked(tc_clock_ns());
    work_.notify_all();
    clock_.notify_all();
    return sends_.empty() && posting_ == 0;
}

bool
GlooP2p::has_sends()
{
    std::lock_guard<std::mutex> lock(mutex_);

    return !sends_.empty();
}

} // namespace torchcomms
