/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of the backend `gloo`: straight-line code, each until it is over. */
#include <c10/util/ParallelGuard.h>

#include "torch/gloo.h"
#include "torch/tensor.h"

namespace torchcomms {

namespace {

using Tensors = std::vector<at::Tensor>;
using Milliseconds = std::chrono::milliseconds;

bool
reduces(tc_op_kind kind)
{
    return kind == TC_OP_ALL_REDUCE || kind == TC_OP_REDUCE ||
           kind == TC_OP_REDUCE_SCATTER || kind == TC_OP_REDUCE_SCATTER_V ||
           kind == TC_OP_REDUCE_SCATTER_SINGLE;
}

/* In which type gloo adds up; Undefined where it cannot. 16-bit floats are rounded
 * once, at the end, and small integers keep the bits that count. */
at::ScalarType
type_for_gloo(at::ScalarType type)
{
    switch (type) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e5m2:
    case at::kFloat8_e4m3fnuz:
    case at::kFloat8_e5m2fnuz:
        return at::kFloat;
    case at::kShort:
    case at::kUInt16:
        return at::kInt;
    case at::kUInt32:
        return at::kLong;
    case at::kBool:
        return at::kByte;
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kFloat:
    case at::kDouble:
        return type;
    default:
        return at::ScalarType::Undefined;
    }
}

/* bool: a sum is "or", a product "and". */
c10d::ReduceOp
op_for_gloo(const tc_call &call)
{
    bool truth = call.dtype == TC_BOOL;

    switch (call.redop) {
    case TC_REDOP_PRODUCT:
        return truth ? c10d::ReduceOp::MIN : c10d::ReduceOp::PRODUCT;
    case TC_REDOP_MIN:
        return c10d::ReduceOp::MIN;
    case TC_REDOP_MAX:
        return c10d::ReduceOp::MAX;
    case TC_REDOP_BAND:
        return c10d::ReduceOp::BAND;
    case TC_REDOP_BOR:
        return c10d::ReduceOp::BOR;
    case TC_REDOP_BXOR:
        return c10d::ReduceOp::BXOR;
    default: /* SUM, AVG and PREMUL_SUM */
        return truth ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    }
}

at::Tensor
view(const void *data, uint64_t count, at::ScalarType type)
{
    static char nothing;

    return at::from_blob(count > 0 ? const_cast<void *>(data) : &nothing,
                         {static_cast<int64_t>(count)}, at::TensorOptions(type));
}

/* One collective. What only moves is bytes to gloo. */
class Run {
  public:
    Run(GlooComm *comm, const tc_call &call, Milliseconds timeout)
        : group_(comm->group()), rank_(comm->rank()), size_(comm->size()), call_(call),
          timeout_(timeout), type_(to_scalar_type(call.dtype)),
          element_(c10::elementSize(type_))
    {
    }

    void
    run()
    {
        switch (call_.kind) {
        case TC_OP_BARRIER:
            barrier();
            return;
        case TC_OP_BROADCAST:
            broadcast(bytes(call_.out, call_.count), call_.root);
            return;
        case TC_OP_ALL_REDUCE:
            all_reduce();
            return;
        case TC_OP_REDUCE:
            reduce();
            return;
        case TC_OP_REDUCE_SCATTER:
        case TC_OP_REDUCE_SCATTER_V:
        case TC_OP_REDUCE_SCATTER_SINGLE:
            reduce_scatter();
            return;
        case TC_OP_ALL_GATHER:
        case TC_OP_ALL_GATHER_SINGLE:
            all_gather();
            return;
        case TC_OP_ALL_GATHER_V:
            all_gather_v();
            return;
        case TC_OP_SCATTER:
            scatter();
            return;
        case TC_OP_GATHER:
        case TC_OP_GATHER_SINGLE:
            gather();
            return;
        default:
            all_to_all();
        }
    }

  private:
    at::Tensor
    bytes(const void *data, uint64_t count) const
    {
        return view(data, count * element_, at::kByte);
    }

    uint64_t
    count_of(const tc_blocks &blocks, int r) const
    {
        return blocks.counts != nullptr ? blocks.counts[r] : blocks.count;
    }

    void *
    place_of(const tc_blocks &blocks, int r) const
    {
        if (blocks.ptrs != nullptr) {
            return blocks.ptrs[r];
        }
        return static_cast<char *>(blocks.base) +
               static_cast<uint64_t>(r) * blocks.count * element_;
    }

    Tensors
    each(const tc_blocks &blocks) const
    {
        Tensors all;

        for (int r = 0; r < size_; r++) {
            all.push_back(bytes(place_of(blocks, r), count_of(blocks, r)));
        }
        return all;
    }

    /* Movement ------------------------------------------------------------------ */

    void
    barrier()
    {
        c10d::BarrierOptions opts;

        opts.timeout = timeout_;
        group_.barrier(opts)->wait();
    }

    void
    broadcast(const at::Tensor &tensor, int root)
    {
        Tensors tensors = {tensor};
        c10d::BroadcastOptions opts;

        if (tensor.numel() == 0) {
            return;
        }
        opts.rootRank = root;
        opts.timeout = timeout_;
        group_.broadcast(tensors, opts)->wait();
    }

    void
    all_gather()
    {
        Tensors in = {bytes(call_.in, call_.count)};
        std::vector<Tensors> out = {each(call_.out_blocks)};
        c10d::AllgatherOptions opts;

        if (call_.count == 0) {
            return;
        }
        opts.timeout = timeout_;
        group_.allgather(out, in, opts)->wait();
    }

    /* Every rank knows every length, so who has nothing to give is left out. */
    void
    all_gather_v()
    {
        Tensors out = each(call_.out_blocks);

        copy(out[static_cast<size_t>(rank_)], bytes(call_.in, call_.count));
        for (int r = 0; r < size_; r++) {
            broadcast(out[static_cast<size_t>(r)], r);
        }
    }

    void
    scatter()
    {
        Tensors out = {bytes(call_.out, call_.count)};
        std::vector<Tensors> in;
        c10d::ScatterOptions opts;

        if (call_.count == 0) {
            return;
        }
        if (call_.root == rank_) {
            in.push_back(each(call_.in_blocks));
        }
        opts.rootRank = call_.root;
        opts.timeout = timeout_;
        group_.scatter(out, in, opts)->wait();
    }

    void
    gather()
    {
        Tensors in = {bytes(call_.in, call_.count)};
        std::vector<Tensors> out;
        c10d::GatherOptions opts;

        if (call_.count == 0) {
            return;
        }
        if (call_.root == rank_) {
            out.push_back(each(call_.out_blocks));
        }
        opts.rootRank = call_.root;
        opts.timeout = timeout_;
        group_.gather(out, in, opts)->wait();
    }

    /* The blocks one behind the other, and their lengths. */
    at::Tensor
    flat(const tc_blocks &blocks, std::vector<int64_t> *lengths) const
    {
        int64_t total = 0;

        for (int r = 0; r < size_; r++) {
            lengths->push_back(static_cast<int64_t>(count_of(blocks, r) * element_));
            total += lengths->back();
        }
        if (blocks.ptrs == nullptr) {
            return view(blocks.base, static_cast<uint64_t>(total), at::kByte);
        }
        return at::empty({total}, at::kByte);
    }

    void
    all_to_all()
    {
        std::vector<int64_t> in_lengths;
        std::vector<int64_t> out_lengths;
        at::Tensor in = flat(call_.in_blocks, &in_lengths);
        at::Tensor out = flat(call_.out_blocks, &out_lengths);
        c10d::AllToAllOptions opts;

        if (call_.in_blocks.ptrs != nullptr) {
            copy_all(in.split_with_sizes(in_lengths), each(call_.in_blocks));
        }
        opts.timeout = timeout_;
        /* Gloo takes the lengths away. */
        std::vector<int64_t> outs = out_lengths;
        std::vector<int64_t> ins = in_lengths;
        group_.alltoall_base(out, in, outs, ins, opts)->wait();
        if (call_.out_blocks.ptrs != nullptr) {
            copy_all(each(call_.out_blocks), out.split_with_sizes(out_lengths));
        }
    }

    static void
    copy(const at::Tensor &to, const at::Tensor &from)
    {
        if (to.numel() > 0 && to.const_data_ptr() != from.const_data_ptr()) {
            to.copy_(from);
        }
    }

    static void
    copy_all(const Tensors &to, const Tensors &from)
    {
        for (size_t r = 0; r < to.size(); r++) {
            copy(to[r], from[r]);
        }
    }

    /* Reductions ---------------------------------------------------------------- */

    /* A type that gloo takes: as it is, another view of it, or wider. */
    at::ScalarType
    sum_type() const
    {
        return at::isComplexType(type_)
                   ? c10::toRealValueType(type_ == at::kComplexHalf ? at::kComplexFloat
                                                                    : type_)
                   : type_for_gloo(type_);
    }

    /* Elements of the user's, as what is added up; `count` complex numbers are twice as
     * many. */
    at::Tensor
    numbers(const void *data, uint64_t count) const
    {
        if (type_ == at::kBool) {
            return view(data, count, at::kByte);
        }
        if (at::isComplexType(type_)) {
            return view(data, 2 * count, c10::toRealValueType(type_));
        }
        return view(data, count, type_);
    }

    /* This rank's contribution, in memory of ours. */
    at::Tensor
    widen(const at::Tensor &in) const
    {
        at::Tensor own = in.to(sum_type(), /*non_blocking=*/false, /*copy=*/true);

        if (call_.redop == TC_REDOP_PREMUL_SUM) {
            own.mul_(call_.factor);
        }
        return own;
    }

    /* Of the sum. */
    void
    finish(const at::Tensor &sum) const
    {
        if (call_.redop != TC_REDOP_AVG) {
            return;
        }
        if (at::isFloatingType(sum.scalar_type())) {
            const_cast<at::Tensor &>(sum).div_(size_);
        } else {
            const_cast<at::Tensor &>(sum).div_(size_, "trunc");
        }
    }

    void
    sum_up(const at::Tensor &sum)
    {
        Tensors tensors = {sum};
        c10d::AllreduceOptions opts;

        opts.reduceOp = op_for_gloo(call_);
        opts.timeout = timeout_;
        group_.allreduce(tensors, opts)->wait();
    }

    void
    all_reduce()
    {
        at::Tensor in = numbers(call_.in, call_.count);
        at::Tensor out = numbers(call_.out, call_.count);
        bool direct =
            in.scalar_type() == sum_type() && call_.redop != TC_REDOP_PREMUL_SUM;

        if (call_.count == 0) {
            return;
        }
        if (direct) {
            copy(out, in);
        }
        at::Tensor sum = direct ? out : widen(in);
        sum_up(sum);
        finish(sum);
        copy(out, sum);
    }

    void
    reduce()
    {
        c10d::ReduceOptions opts;

        if (call_.count == 0) {
            return;
        }
        /* Gloo works in the tensor it is given, on every rank. */
        at::Tensor sum = widen(numbers(call_.in, call_.count));
        Tensors tensors = {sum};

        opts.reduceOp = op_for_gloo(call_);
        opts.rootRank = call_.root;
        opts.timeout = timeout_;
        group_.reduce(tensors, opts)->wait();
        if (call_.root == rank_) {
            finish(sum);
            copy(numbers(call_.out, call_.count), sum);
        }
    }

    /* Gloo's own does the same: all of the sum to everybody. */
    void
    reduce_scatter()
    {
        Tensors parts;

        for (int r = 0; r < size_; r++) {
            parts.push_back(widen(
                numbers(place_of(call_.in_blocks, r), count_of(call_.in_blocks, r))));
        }
        std::vector<int64_t> lengths;
        for (const at::Tensor &part : parts) {
            lengths.push_back(part.numel());
        }
        at::Tensor sum = at::cat(parts);
        if (sum.numel() == 0) {
            return;
        }
        sum_up(sum);
        at::Tensor own = sum.split_with_sizes(lengths)[static_cast<size_t>(rank_)];
        finish(own);
        copy(numbers(call_.out, call_.count), own);
    }

    c10d::Backend &group_;
    const int rank_;
    const int size_;
    const tc_call &call_;
    const Milliseconds timeout_;
    const at::ScalarType type_;
    const uint64_t element_;
};

} // namespace

tc_status
check_gloo_call(const tc_call &call, tc_error *err)
{
    at::ScalarType type = to_scalar_type(call.dtype);

    if (!reduces(call.kind)) {
        return TC_OK;
    }
    tc_status status = core->reduce_check(call.dtype, call.redop, err);
    if (status != TC_OK) {
        return status;
    }
    bool known = at::isComplexType(type)
                     ? call.redop != TC_REDOP_PRODUCT
                     : type_for_gloo(type) != at::ScalarType::Undefined;
    if (!known) {
        err->status = TC_ERR_UNSUPPORTED;
        snprintf(err->message, sizeof(err->message),
                 "%s: gloo has no such reduction of dtype %s", gloo_op_name(call.kind),
                 c10::toString(type));
        return err->status;
    }
    return TC_OK;
}

void
run_gloo_collective(GlooComm *comm, const tc_call &call, Milliseconds timeout)
{
    /* Copies and scaling stay on this thread: it is one of a communicator's, and torch
     * would give each of them a pool of its own. */
    c10::ParallelGuard serial(true);
    at::NoGradGuard no_grad;

    Run(comm, call, timeout).run();
}

} // namespace torchcomms
