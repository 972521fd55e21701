/* SPDX-License-Identifier: BSD-3-Clause */
/* c10d::Backend: point-to-point, batches of it, and the barrier made of it. */
#include "torch/c10d_backend.h"

namespace torchcomms {

using c10d::OpType;

TorchCommsBackend::WorkPtr
TorchCommsBackend::p2p(Tensors &tensors, tc_op_kind kind, int peer, int tag)
{
    bool sends = kind == TC_OP_SEND;
    OpType type = sends                   ? OpType::SEND
                  : peer == TC_ANY_SOURCE ? OpType::RECVANYSOURCE
                                          : OpType::RECV;

    TORCH_CHECK_VALUE(tensors.size() == 1, sends ? "send" : "recv",
                      ": one tensor is wanted, but got ", tensors.size());
    TORCH_CHECK_VALUE(tag >= 0, "tag must not be negative, but got ", tag);
    const char *name = sends                   ? "send"
                       : peer == TC_ANY_SOURCE ? "recvAnySource"
                                               : "recv";
    Issue issue(this, {type, name, true, options_->limit()});
    at::Tensor memory = sends ? issue.read(tensors[0]) : issue.write(tensors[0]);
    tc_call call = {};

    call.kind = kind;
    call.dtype = to_dtype(memory);
    call.root = peer;
    call.tag = tag;
    call.count = static_cast<uint64_t>(memory.numel());
    if (sends) {
        call.in = memory.const_data_ptr();
    } else {
        call.out = memory.data_ptr();
        issue.note(tensors[0]);
    }
    if (coalesced_ != nullptr && peer != TC_ANY_SOURCE) {
        issue.move_to(coalesced_.get(), call);
        return done();
    }
    call.source = sends ? nullptr : issue.source();
    issue.run(&call);
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::send(Tensors &tensors, int dst, int tag)
{
    return p2p(tensors, TC_OP_SEND, dst, tag);
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::recv(Tensors &tensors, int src, int tag)
{
    TORCH_CHECK_VALUE(src >= 0, "src must be in range [0, ", size_, "), but got ", src);
    return p2p(tensors, TC_OP_RECV, src, tag);
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::recvAnysource(Tensors &tensors, int tag)
{
    return p2p(tensors, TC_OP_RECV, TC_ANY_SOURCE, tag);
}

/* Batches -------------------------------------------------------------------------- */

void
TorchCommsBackend::startCoalescing()
{
    TORCH_CHECK(coalesced_ == nullptr,
                "startCoalescing: the one before has not been ended");
    coalesced_ = std::make_unique<Coalesced>();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::endCoalescing()
{
    TORCH_CHECK(coalesced_ != nullptr, "endCoalescing without startCoalescing");
    /* Over whatever happens. */
    std::unique_ptr<Coalesced> batch = std::move(coalesced_);

    if (batch->entries.empty() && batch->works.empty()) {
        return done();
    }
    Issue issue(this, {OpType::COALESCED, "coalesced", true, options_->limit()});
    if (!batch->entries.empty()) {
        tc_call call = {};

        issue.take_from(batch.get());
        call.kind = TC_OP_BATCH;
        call.dtype = batch->entries[0].dtype;
        call.batch = batch->entries.data();
        call.batch_count = batch->entries.size();
        issue.run(&call);
    }
    for (const auto &work : batch->works) {
        issue.join(work);
    }
    return issue.finish();
}

/* Monitored barrier ---------------------------------------------------------------- */

namespace {

/* Tags that no user can give. */
int32_t
arrival_tag(int32_t barrier)
{
    return INT32_MIN + 2 * (barrier & 0xfffffff);
}

int32_t
release_tag(int32_t barrier)
{
    return arrival_tag(barrier) + 1;
}

tc_status
pass_token(tc_comm *comm, tc_op_kind kind, int peer, int32_t tag, uint64_t timeout_ns,
           tc_error *err)
{
    at::Tensor token = at::zeros({1}, at::kByte);
    Shown shown;
    tc_hook_event event = {};
    tc_work *work = nullptr;
    tc_call call = {};

    call.kind = kind;
    call.dtype = TC_UINT8;
    call.root = peer;
    call.tag = tag;
    call.count = 1;
    call.in = call.out = token.data_ptr();
    event.kind = kind;
    event.call = &call;
    (kind == TC_OP_SEND ? shown.inputs : shown.outputs).push_back(token);
    auto hooks = begin_hooks(comm, event, shown);
    tc_status status = core->comm_issue(comm, &call, timeout_ns, &work, err);
    if (status == TC_PENDING) {
        SignalWatch watch;

        /* Stays for a receive that is given up by an interrupt. */
        auto *keep = new Keep();
        keep->tensors.push_back(token);
        keep->own(work);
        keep->unref();
        status = core->work_wait(work, UINT64_MAX, watch.get(), err);
        core->work_release(work);
    }
    if (status == TC_OK && hooks != nullptr) {
        hooks->end(nullptr, nullptr);
    } else {
        core->hooks_call_failed(comm, status);
    }
    return status;
}

std::string
list_ranks(const std::vector<int> &ranks)
{
    std::string text;

    for (int rank : ranks) {
        text += (text.empty() ? "" : ", ") + std::to_string(rank);
    }
    return text;
}

} // namespace

/* Rank 0 hears of each rank in turn, then tells all. */
void
TorchCommsBackend::monitoredBarrier(const c10d::BarrierOptions &opts,
                                    bool wait_all_ranks)
{
    check_ranks();
    /* Zero is a limit, too. */
    auto timeout = opts.timeout.count() >= 0 ? opts.timeout : options_->limit();
    int32_t barrier = barriers_++;
    tc_comm *comm = comm_->get();
    std::vector<int> passed, missing;
    tc_error err = {};
    uint64_t limit_ns = to_ns(timeout);
    auto begin = std::chrono::steady_clock::now();

    if (rank_ != 0) {
        tc_status status =
            pass_token(comm, TC_OP_SEND, 0, arrival_tag(barrier), limit_ns, &err);

        if (status == TC_OK) {
            /* Rank 0 may wait for each of the others that long. */
            status = pass_token(comm, TC_OP_RECV, 0, release_tag(barrier),
                                limit_ns * static_cast<uint64_t>(size_ + 1), &err);
        }
        if (status == TC_INTERRUPTED) {
            throw_error(status, err);
        }
        TORCH_CHECK_WITH(DistBackendError, status == TC_OK, "Rank ", rank_,
                         " successfully reached monitoredBarrier, but received errors "
                         "while waiting for send/recv from rank 0. Please check rank 0 "
                         "logs for faulty rank.\n Original exception: \n",
                         err.message);
        return;
    }
    for (int rank = 1; rank < size_; rank++) {
        uint64_t used_ns =
            static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count());

        TORCH_CHECK_WITH(DistBackendError, wait_all_ranks || used_ns < limit_ns,
                         "Rank 0 timed out in monitoredBarrier after ", timeout.count(),
                         " ms.\n Successfully processed ranks: ", list_ranks(passed));
        tc_status status = pass_token(comm, TC_OP_RECV, rank, arrival_tag(barrier),
                                      wait_all_ranks ? std::max<uint64_t>(limit_ns, 1)
                                                     : limit_ns - used_ns,
                                      &err);
        if (status == TC_INTERRUPTED) {
            throw_error(status, err);
        }
        if (status == TC_OK) {
            passed.push_back(rank);
            continue;
        }
        TORCH_CHECK_WITH(DistBackendError, wait_all_ranks, "[Rank 0]: Rank ", rank,
                         " failed to pass monitoredBarrier in ", timeout.count(),
                         " ms\n Original exception: \n", err.message);
        missing.push_back(rank);
    }
    TORCH_CHECK_WITH(DistBackendError, missing.empty(), "[Rank 0]: Ranks ",
                     list_ranks(missing), " failed to pass monitoredBarrier in ",
                     timeout.count(), " ms");
    for (int rank = 1; rank < size_; rank++) {
        tc_status status =
            pass_token(comm, TC_OP_SEND, rank, release_tag(barrier), limit_ns, &err);

        if (status == TC_INTERRUPTED) {
            throw_error(status, err);
        }
        if (status != TC_OK) {
            missing.push_back(rank);
        }
    }
    TORCH_CHECK_WITH(DistBackendError, missing.empty(),
                     "[Rank 0]: failed to ack ranks ", list_ranks(missing));
}

} // namespace torchcomms
