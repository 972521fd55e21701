/* SPDX-License-Identifier: BSD-3-Clause */
/* c10d::Backend: the sum of sparse tensors, by gathering their elements. */
#include "torch/c10d_backend.h"

namespace torchcomms {

namespace {

/* What the ranks must agree on, and the number of elements, which may differ. */
at::Tensor
describe(const at::Tensor &tensor)
{
    std::vector<int64_t> numbers(tensor.sizes().begin(), tensor.sizes().end());

    numbers.push_back(tensor.sparse_dim());
    numbers.push_back(tensor._nnz());
    return at::tensor(numbers, at::kLong);
}

void
check_same_shape(const at::Tensor &mine, const at::Tensor &theirs, size_t rank)
{
    int64_t shape = mine.numel() - 1;

    TORCH_CHECK_VALUE(
        mine.slice(0, 0, shape).equal(theirs.slice(0, 0, shape)),
        "all_reduce of sparse tensors: this rank's sizes are not those of "
        "rank ",
        rank);
}

} // namespace

/* One tensor of each rank, whose number of elements in dimension `dim` is `counts`. */
TorchCommsBackend::Tensors
TorchCommsBackend::gather_uneven(const at::Tensor &tensor, int64_t dim,
                                 const std::vector<int64_t> &counts,
                                 std::chrono::milliseconds timeout)
{
    std::vector<Tensors> outputs(1);
    Tensors inputs = {tensor.contiguous()};
    c10d::AllgatherOptions opts;

    for (int64_t count : counts) {
        std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());

        sizes[static_cast<size_t>(dim)] = count;
        outputs[0].push_back(at::empty(sizes, tensor.options()));
    }
    opts.timeout = timeout;
    opts.asyncOp = false;
    allgather(outputs, inputs, opts);
    return outputs[0];
}

/* The elements are needed before their sum can be made: also an asynchronous call is
 * over when it returns. */
TorchCommsBackend::WorkPtr
TorchCommsBackend::allreduce_sparse(Tensors &tensors,
                                    const c10d::AllreduceOptions &opts)
{
    TORCH_CHECK_VALUE(tensors.size() == 1 && tensors[0].layout() == at::kSparse,
                      "all_reduce of sparse tensors takes one tensor of layout Sparse");
    TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM,
                      "all_reduce of sparse tensors: the only reduce op is SUM");
    TORCH_CHECK_VALUE(tensors[0].device().is_cpu(), "the group takes CPU tensors");
    TORCH_CHECK(coalesced_ == nullptr, "sparse tensors cannot be coalesced");
    Issue issue(this, {c10d::OpType::_ALLREDUCE_SPARSE, "sparse_all_reduce",
                       opts.asyncOp, opts.timeout});
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor own = tensors[0].coalesce();
    at::Tensor shape = describe(own);
    std::vector<int64_t> same(static_cast<size_t>(size_), shape.numel()), counts;
    size_t rank = 0;

    issue.note(tensors[0]);
    for (const at::Tensor &other : gather_uneven(shape, 0, same, opts.timeout)) {
        check_same_shape(shape, other, rank++);
        counts.push_back(other[-1].item<int64_t>());
    }
    Tensors indices = gather_uneven(own.indices(), 1, counts, opts.timeout);
    Tensors values = gather_uneven(own.values(), 0, counts, opts.timeout);
    at::Tensor sum =
        at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), own.sizes())
            .coalesce();
    tensors[0].copy_(sum);
    issue.result(tensors[0]);
    return issue.finish();
}

} // namespace torchcomms
