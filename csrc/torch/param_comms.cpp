/* SPDX-License-Identifier: BSD-3-Clause */
/* record_param_comms events. */
#include "torch/param_comms.h"

#include "torch/c10d_backend.h"

namespace torchcomms {

namespace {

/* As NCCL's events have it, since tools look for that. */
constexpr std::pair<tc_op_kind, const char *> kCollectives[] = {
    {TC_OP_SEND, "send"},
    {TC_OP_RECV, "recv"},
    {TC_OP_BROADCAST, "broadcast"},
    {TC_OP_ALL_REDUCE, "allreduce"},
    {TC_OP_REDUCE, "reduce"},
    {TC_OP_ALL_GATHER, "all_gather"},
    {TC_OP_ALL_GATHER_V, "all_gather"},
    {TC_OP_ALL_GATHER_SINGLE, "_allgather_base"},
    {TC_OP_REDUCE_SCATTER, "reduce_scatter"},
    {TC_OP_REDUCE_SCATTER_V, "reduce_scatter"},
    {TC_OP_REDUCE_SCATTER_SINGLE, "_reduce_scatter_base"},
    {TC_OP_ALL_TO_ALL, "all_to_all"},
    {TC_OP_ALL_TO_ALL_SINGLE, "all_to_all"},
    {TC_OP_ALL_TO_ALL_V_SINGLE, "all_to_allv"},
    {TC_OP_BARRIER, "barrier"},
    {TC_OP_SCATTER, "scatter"},
    {TC_OP_GATHER, "gather"},
    {TC_OP_GATHER_SINGLE, "gather_single"},
};

const char *
find_collective(tc_op_kind kind)
{
    for (const auto &known : kCollectives) {
        if (known.first == kind) {
            return known.second;
        }
    }
    return "unknown";
}

int64_t
sum_blocks(const tc_blocks &blocks, int size)
{
    if (blocks.counts == nullptr) {
        return static_cast<int64_t>(blocks.count) * size;
    }
    int64_t sum = 0;
    for (int r = 0; r < size; r++) {
        sum += static_cast<int64_t>(blocks.counts[r]);
    }
    return sum;
}

/* Elements that go in and come out. Also a rank that is not the root shows those of
 * the root, as NCCL's events do. */
std::pair<int64_t, int64_t>
count_elements(const tc_call &call, int size)
{
    auto count = static_cast<int64_t>(call.count);

    switch (call.kind) {
    case TC_OP_ALL_GATHER:
    case TC_OP_ALL_GATHER_SINGLE:
    case TC_OP_GATHER:
    case TC_OP_GATHER_SINGLE:
        return {count, count * size};
    case TC_OP_REDUCE_SCATTER:
    case TC_OP_REDUCE_SCATTER_SINGLE:
    case TC_OP_SCATTER:
        return {count * size, count};
    case TC_OP_ALL_GATHER_V:
        return {count, sum_blocks(call.out_blocks, size)};
    case TC_OP_REDUCE_SCATTER_V:
        return {sum_blocks(call.in_blocks, size), count};
    case TC_OP_ALL_TO_ALL:
    case TC_OP_ALL_TO_ALL_SINGLE:
    case TC_OP_ALL_TO_ALL_V_SINGLE:
        return {sum_blocks(call.in_blocks, size), sum_blocks(call.out_blocks, size)};
    default:
        return {count, count};
    }
}

/* Start and stride of the group's ranks among all; -1 where there is no stride. */
std::pair<int, int>
find_stride(const TorchCommsBackend &backend)
{
    int size = backend.getSize();
    auto start = static_cast<int>(backend.global_rank(0));

    if (size == 1) {
        return {start, 0};
    }
    int stride = static_cast<int>(backend.global_rank(1)) - start;
    for (int r = 2; r < size; r++) {
        if (static_cast<int>(backend.global_rank(r)) != start + r * stride) {
            return {start, -1};
        }
    }
    return {start, stride};
}

/* The root, or the peer of a send or recv, or this rank. */
int
find_rank(const TorchCommsBackend &backend, const tc_call &call)
{
    switch (call.kind) {
    case TC_OP_BROADCAST:
    case TC_OP_REDUCE:
    case TC_OP_GATHER:
    case TC_OP_GATHER_SINGLE:
    case TC_OP_SCATTER:
    case TC_OP_SEND:
    case TC_OP_RECV:
        return call.root;
    default:
        return backend.getRank();
    }
}

std::tuple<std::string, std::string>
find_name(const TorchCommsBackend &backend)
{
    const std::string &uid = backend.getGroupUid();

    return {uid.empty() ? core->comm_name(backend.comm().peek()) : uid,
            backend.getGroupDesc()};
}

std::shared_ptr<torch::ParamCommsDebugInfo>
make_info(const TorchCommsBackend &backend, const tc_call &call,
          const CommsDetails &details)
{
    auto [in, out] = count_elements(call, backend.getSize());
    auto [start, stride] = find_stride(backend);

    auto info = std::make_shared<torch::ParamCommsDebugInfo>(
        find_name(backend), find_rank(backend, call), find_collective(call.kind), in,
        out, details.dtype, details.input_splits, details.output_splits, start, stride,
        backend.getSize(), details.async);
    torch::maybeSetSequenceInfo(info, std::make_tuple(details.sequence, details.p2p));
    return info;
}

} // namespace

ParamComms::ParamComms(const TorchCommsBackend &backend, const tc_call &call,
                       const CommsDetails &details)
    : info_(c10::DebugInfoKind::PARAM_COMMS_INFO, make_info(backend, call, details))
{
    if (!record_.isActive()) {
        return;
    }
    auto [start, stride] = find_stride(backend);
    std::array<c10::IValue, 11> inputs = {
        details.inputs,
        std::make_tuple(details.sequence, details.p2p),
        find_name(backend),
        find_rank(backend, call),
        find_collective(call.kind),
        details.input_splits,
        details.output_splits,
        start,
        stride,
        backend.getSize(),
        details.async};

    if (record_.needsInputs()) {
        record_.before(at::kParamCommsCallName,
                       c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
    } else {
        record_.before(at::kParamCommsCallName);
    }
    if (record_.needsOutputs()) {
        record_.setOutputs(std::vector<c10::IValue>(1, details.outputs));
    }
}

} // namespace torchcomms
