/* SPDX-License-Identifier: BSD-3-Clause */
/* c10d::Backend: life, groups, and the collectives. */
#include "torch/c10d_backend.h"

namespace torchcomms {

using c10d::OpType;

TorchCommsBackend::TorchCommsBackend(std::shared_ptr<Comm> comm,
                                     std::chrono::milliseconds timeout)
    : Backend(core->comm_rank(comm->peek()), core->comm_size(comm->peek())),
      comm_(std::move(comm)),
      options_(c10::make_intrusive<BackendOptions>(comm_->peek(), timeout))
{
    auto done = c10::make_intrusive<TorchCommsWork>(rank_, OpType::UNKNOWN,
                                                    TorchCommsWork::Event{}, 0, 0);
    done->begin(nullptr, {}, {});
    done_ = done;
}

/* Life ----------------------------------------------------------------------------- */

const std::string
TorchCommsBackend::getBackendName() const
{
    return core->comm_backend_name(comm_->peek());
}

c10::intrusive_ptr<c10d::Backend::Options>
TorchCommsBackend::getBackendOptions()
{
    return options_->for_child();
}

void
TorchCommsBackend::setTimeout(std::chrono::milliseconds timeout)
{
    options_->set_limit(timeout);
}

/* c10d finalizes through its list of communicators and then once more here, for each
 * device type; a broken communicator is left all the same. */
void
TorchCommsBackend::shutdown()
{
    if (comm_->is_lost()) {
        return;
    }
    tc_error err = {};
    SignalWatch watch;
    Shown nothing;
    std::unique_ptr<HookedCall> hooks;
    tc_hook_event event = {};

    event.kind = TC_OP_FINALIZE;
    /* The second time nothing happens. */
    if (core->comm_check_usable(comm_->get(), nullptr) != TC_ERR_FINALIZED) {
        hooks = begin_hooks(comm_->get(), event, nothing);
    }
    tc_status status = core->comm_finalize(comm_->get(), watch.get(), &err);

    if (status == TC_INTERRUPTED) {
        throw_error(status, err);
    }
    if (status != TC_OK && status != TC_ERR_FINALIZED) {
        TORCH_WARN("shutdown of '", core->comm_name(comm_->peek()), "': ", err.message);
    }
    drain_keeps();
    if (hooks != nullptr && status == TC_OK) {
        hooks->end(nullptr, nullptr);
    }
}

/* c10d::Backend has its rank and size for good. */
void
TorchCommsBackend::check_ranks() const
{
    int rank = core->comm_rank(comm_->peek());
    int size = core->comm_size(comm_->peek());

    if (C10_LIKELY(rank == rank_ && size == size_)) {
        return;
    }
    check_configured(*comm_);
    C10_THROW_ERROR(DistBackendError,
                    c10::str("this backend was made when communicator '",
                             core->comm_name(comm_->peek()), "' was rank ", rank_,
                             " of ", size_, ", which was reconfigured to rank ", rank,
                             " of ", size, ": make another"));
}

void
TorchCommsBackend::abort()
{
    if (!comm_->is_lost()) {
        core->comm_abort(comm_->get());
    }
}

c10d::ErrorType
TorchCommsBackend::getError()
{
    return core->comm_is_aborted(comm_->get()) ? c10d::ErrorType::COMM_ERROR
                                               : c10d::ErrorType::SUCCESS;
}

uint64_t
TorchCommsBackend::getSequenceNumberForGroup()
{
    return sequence_;
}

namespace {

/* The child's options: those of ours, and of any others what c10d wrote into them. */
c10::intrusive_ptr<BackendOptions>
options_of_child(const c10::intrusive_ptr<c10d::Backend::Options> &given,
                 const BackendOptions &parent)
{
    auto *ours = dynamic_cast<BackendOptions *>(given.get());
    auto options = ours != nullptr ? c10::make_intrusive<BackendOptions>(*ours)
                                   : parent.for_child();

    if (given) {
        options->group_name = given->group_name;
        options->timeout = given->timeout;
    }
    return options;
}

} // namespace

c10::intrusive_ptr<c10d::Backend>
TorchCommsBackend::split(const c10::intrusive_ptr<c10d::Store> & /* not needed */,
                         const std::vector<int> &ranks,
                         const c10::intrusive_ptr<Options> &opts)
{
    auto options = options_of_child(opts, *options_);
    std::vector<int32_t> list(ranks.begin(), ranks.end());
    auto hints = options->all_hints();
    std::vector<tc_hint> hint_list;
    tc_split_options split = {};
    SignalWatch watch;
    tc_comm *child = nullptr;
    tc_error err = {};

    if (!opts || options->group_name.empty()) {
        options->group_name = std::string(core->comm_name(comm_->get())) + "_split";
    }
    for (const auto &hint : hints) {
        hint_list.push_back({hint.first.c_str(), hint.second.c_str()});
    }
    /* Not NULL: without hints the child has none. */
    hint_list.reserve(1);
    /* Who joins no child is given the list of others, or none. */
    bool joins = std::find(list.begin(), list.end(), rank_) != list.end();

    split.ranks = list.data();
    split.rank_count = joins ? static_cast<int32_t>(list.size()) : 0;
    split.name = options->group_name.c_str();
    split.timeout_ns = to_ns(options->child_limit());
    split.abort_process = &options->abort_process;
    split.hints = hint_list.data();
    split.hint_count = hint_list.size();
    split.interrupt = *watch.get();
    Shown nothing;
    tc_hook_event event = {};

    event.kind = TC_OP_SPLIT;
    event.split = &split;
    auto hooks = begin_hooks(comm_->get(), event, nothing);
    tc_status status = core->comm_split(comm_->get(), &split, &child, &err);
    if (status != TC_OK) {
        throw_error(status, err);
    }
    if (child == nullptr) {
        return nullptr;
    }
    tc_py_hold *hold = core->comm_hold(core_ctx, child);
    TORCH_CHECK(hold != nullptr, "no memory for communicator '", options->group_name,
                "'");
    auto backend = c10::make_intrusive<TorchCommsBackend>(std::make_shared<Comm>(hold),
                                                          options->child_limit());

    backend->options_->store = options->store;
    for (int rank : ranks) {
        backend->options_->global_ranks_in_group.push_back(global_rank(rank));
    }
    if (hooks != nullptr) {
        hooks->end(nullptr, child);
    }
    return backend;
}

/* Of a rank of this group; known to be another where c10d has said so. */
uint64_t
TorchCommsBackend::global_rank(int rank) const
{
    const auto &known = options_->global_ranks_in_group;
    auto place = static_cast<size_t>(rank);

    return place < known.size() ? known[place] : place;
}

/* Memory --------------------------------------------------------------------------- */

/* Torch gives the index of a device and not its type. */
bool
TorchCommsBackend::supportsTensorAlloc(c10::DeviceIndex /* the CPU has one */)
{
    return core->comm_has_memory(comm_->peek());
}

at::Tensor
TorchCommsBackend::allocateTensor(long size, at::TensorOptions options)
{
    TORCH_CHECK_VALUE(size >= 0, "size must not be negative, but got ", size);
    TORCH_CHECK_VALUE(options.device().is_cpu(), "group '",
                      core->comm_name(comm_->peek()),
                      "' has no communicator for device ", options.device(),
                      ": it takes CPU tensors");
    auto count = static_cast<uint64_t>(size);
    uint64_t each = options.dtype().itemsize();
    tc_memory memory = {};
    tc_error err = {};

    TORCH_CHECK_VALUE(count <= UINT64_MAX / each, size, " elements of ",
                      options.dtype(), " are more than any memory");
    tc_status status =
        core->comm_memory_alloc(comm_->get(), count * each, &memory, &err);
    if (status != TC_OK) {
        throw_error(status, err);
    }
    return at::from_blob(
        memory.ptr, {size}, [memory](void *) { memory.release(memory.ctx); }, options);
}

/* Arguments ------------------------------------------------------------------------ */

void
TorchCommsBackend::check(const at::Tensor &tensor) const
{
    TORCH_CHECK_VALUE(tensor.defined(), "a tensor of the call is undefined");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided,
                      "only dense tensors can be communicated, but got layout ",
                      tensor.layout());
    TORCH_CHECK_VALUE(
        tensor.device().is_cpu(), "group '", core->comm_name(comm_->peek()),
        "' has no communicator for device ", tensor.device(), ": it takes CPU tensors");
}

std::string
TorchCommsBackend::title(const char *operation) const
{
    return getBackendName() + ":" + operation;
}

namespace {

tc_call
make_call(tc_op_kind kind, const at::Tensor &like)
{
    tc_call call = {};

    call.kind = kind;
    call.dtype = to_dtype(like);
    return call;
}

void
check_one(size_t count, const char *name)
{
    TORCH_CHECK_VALUE(count == 1, name, ": one tensor is wanted, but got ", count);
}

void
check_list(size_t count, int size, const char *name)
{
    TORCH_CHECK_VALUE(count == static_cast<size_t>(size), name, " has ", count,
                      " entries, but the group has ", size, " ranks");
}

/* whole = size x part */
void
check_whole(const at::Tensor &whole, const at::Tensor &part, int size, const char *name)
{
    TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, name, " has ",
                      whole.numel(), " elements, expected ", size, " x ", part.numel());
    TORCH_CHECK_VALUE(whole.scalar_type() == part.scalar_type(),
                      "output and input must have the same dtype, but got ",
                      whole.dtype(), " and ", part.dtype());
}

uint64_t
count_of(const at::Tensor &tensor)
{
    return static_cast<uint64_t>(tensor.numel());
}

} // namespace

/* One tensor ----------------------------------------------------------------------- */

TorchCommsBackend::WorkPtr
TorchCommsBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "broadcast needs a tensor");
    Issue issue(this, {OpType::BROADCAST, "broadcast", opts.asyncOp, opts.timeout},
                tensors.size());
    bool root = opts.rootRank == rank_;

    for (const at::Tensor &tensor : tensors) {
        if (!root) {
            issue.note(tensor);
        }
        at::Tensor memory = root ? issue.update(tensor) : issue.write(tensor);
        tc_call call = make_call(TC_OP_BROADCAST, memory);

        call.root = static_cast<int32_t>(opts.rootRank);
        call.count = count_of(memory);
        call.in = call.out = memory.data_ptr();
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "allreduce needs a tensor");
    if (tensors[0].layout() == at::kSparse) {
        return allreduce_sparse(tensors, opts);
    }
    Issue issue(this, {OpType::ALLREDUCE, "all_reduce", opts.asyncOp, opts.timeout},
                tensors.size());

    for (const at::Tensor &tensor : tensors) {
        at::Tensor memory = issue.update(tensor);
        tc_call call = make_call(TC_OP_ALL_REDUCE, memory);

        set_redop(opts.reduceOp, &call);
        call.count = count_of(memory);
        call.in = call.out = memory.data_ptr();
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::allreduce_coalesced(Tensors &tensors,
                                       const c10d::AllreduceCoalescedOptions &opts)
{
    return tensors.empty() ? done() : allreduce(tensors, opts);
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "reduce needs a tensor");
    Issue issue(this, {OpType::REDUCE, "reduce", opts.asyncOp, opts.timeout},
                tensors.size());
    bool root = opts.rootRank == rank_;

    for (const at::Tensor &tensor : tensors) {
        at::Tensor memory = root ? issue.update(tensor) : issue.read(tensor);
        tc_call call = make_call(TC_OP_REDUCE, memory);

        set_redop(opts.reduceOp, &call);
        call.root = static_cast<int32_t>(opts.rootRank);
        call.count = count_of(memory);
        call.in = call.out = memory.data_ptr();
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::barrier(const c10d::BarrierOptions &opts)
{
    Issue issue(this, {OpType::BARRIER, "barrier", opts.asyncOp, opts.timeout});
    tc_call call = {};

    call.kind = TC_OP_BARRIER;
    issue.run(&call);
    return issue.finish();
}

/* Gathers -------------------------------------------------------------------------- */

TorchCommsBackend::WorkPtr
TorchCommsBackend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                             const c10d::AllgatherOptions &opts)
{
    TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(),
                      "allgather: ", inputs.size(), " inputs, but ", outputs.size(),
                      " output lists");
    Issue issue(this, {OpType::ALLGATHER, "all_gather", opts.asyncOp, opts.timeout},
                inputs.size());

    for (size_t i = 0; i < inputs.size(); i++) {
        check(inputs[i]);
        check_list(outputs[i].size(), size_, "the output list");
        tc_call call = make_call(TC_OP_ALL_GATHER_V, inputs[i]);
        at::Tensor in = issue.read(inputs[i]);
        Blocks blocks;
        bool even = true;

        for (const at::Tensor &output : outputs[i]) {
            even = even && output.numel() == in.numel();
        }
        if (touch(outputs[i], {in}, rank_)) {
            issue.write_apart(outputs[i], call.dtype, &blocks);
        } else {
            issue.write(outputs[i], call.dtype, &blocks);
        }
        call.kind = even ? TC_OP_ALL_GATHER : TC_OP_ALL_GATHER_V;
        call.count = count_of(in);
        call.in = in.const_data_ptr();
        call.out_blocks = blocks.get();
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                       const c10d::AllgatherOptions &opts)
{
    /* Its lists are the other way round: one list for each rank. */
    std::vector<Tensors> by_input(inputs.size());

    check_list(outputs.size(), size_, "the list of output lists");
    for (const Tensors &of_rank : outputs) {
        TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "an output list has ",
                          of_rank.size(), " entries, expected ", inputs.size());
        for (size_t i = 0; i < inputs.size(); i++) {
            by_input[i].push_back(of_rank[i]);
        }
    }
    return inputs.empty() ? done() : allgather(by_input, inputs, opts);
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                   const c10d::AllgatherOptions &opts)
{
    TORCH_CHECK_VALUE(inputs.size() == outputs.size(),
                      "all_gather_into_tensor: ", inputs.size(), " inputs, but ",
                      outputs.size(), " outputs");
    if (inputs.empty()) {
        return done();
    }
    Issue issue(
        this,
        {OpType::_ALLGATHER_BASE, "all_gather_into_tensor", opts.asyncOp, opts.timeout},
        inputs.size());

    for (size_t i = 0; i < inputs.size(); i++) {
        check(inputs[i]);
        check(outputs[i]);
        check_whole(outputs[i], inputs[i], size_, "output");
        at::Tensor in = issue.read(inputs[i]);
        at::Tensor out = issue.write(outputs[i]);
        tc_call call = make_call(TC_OP_ALL_GATHER_SINGLE, in);

        /* In place: the input is this rank's part of the output. */
        if (touch({out}, {in}, rank_) && in.nbytes() > 0 &&
            in.const_data_ptr() !=
                static_cast<const char *>(out.const_data_ptr()) + rank_ * in.nbytes()) {
            in = issue.read(in.clone());
        }
        call.count = count_of(in);
        call.in = in.const_data_ptr();
        call.out_blocks = even_blocks(out, call.count);
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                   const c10d::AllgatherOptions &opts)
{
    Tensors outputs = {output};
    Tensors inputs = {input};

    return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::GatherOptions &opts)
{
    check_one(inputs.size(), "gather");
    Issue issue(this, {OpType::GATHER, "gather", opts.asyncOp, opts.timeout});
    at::Tensor in = issue.read(inputs[0]);
    tc_call call = make_call(TC_OP_GATHER, in);
    Blocks blocks;

    if (opts.rootRank == rank_) {
        check_one(outputs.size(), "gather: output lists");
        check_list(outputs[0].size(), size_, "the output list");
        if (touch(outputs[0], {in}, rank_)) {
            issue.write_apart(outputs[0], call.dtype, &blocks);
        } else {
            issue.write(outputs[0], call.dtype, &blocks);
        }
        call.out_blocks = blocks.get();
    } else {
        TORCH_CHECK_VALUE(outputs.empty() ||
                              (outputs.size() == 1 && outputs[0].empty()),
                          "gather: requires empty output on non-root");
    }
    call.root = static_cast<int32_t>(opts.rootRank);
    call.count = count_of(in);
    call.in = in.const_data_ptr();
    issue.run(&call);
    return issue.finish();
}

/* Came to c10d with its hooks. */
#ifdef C10D_BACKEND_HAS_HOOKS
TorchCommsBackend::WorkPtr
TorchCommsBackend::gather_single(at::Tensor &output, at::Tensor &input,
                                 const c10d::GatherOptions &opts)
{
    Issue issue(this, {OpType::GATHER, "gather_single", opts.asyncOp, opts.timeout});
    at::Tensor in = issue.read(input);
    tc_call call = make_call(TC_OP_GATHER_SINGLE, in);

    if (opts.rootRank == rank_) {
        check(output);
        check_whole(output, in, size_, "output");
        at::Tensor out = issue.write(output);

        /* In place: the input is this rank's part of the output. */
        if (touch({out}, {in}, rank_) && in.nbytes() > 0 &&
            in.const_data_ptr() !=
                static_cast<const char *>(out.const_data_ptr()) + rank_ * in.nbytes()) {
            in = issue.read(in.clone());
        }
        call.out_blocks = even_blocks(out, count_of(in));
    }
    call.root = static_cast<int32_t>(opts.rootRank);
    call.count = count_of(in);
    call.in = in.const_data_ptr();
    issue.run(&call);
    return issue.finish();
}
#endif

/* Scatters ------------------------------------------------------------------------- */

TorchCommsBackend::WorkPtr
TorchCommsBackend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ScatterOptions &opts)
{
    check_one(outputs.size(), "scatter");
    Issue issue(this, {OpType::SCATTER, "scatter", opts.asyncOp, opts.timeout});
    check(outputs[0]);
    tc_call call = make_call(TC_OP_SCATTER, outputs[0]);
    Blocks blocks;
    at::Tensor out;

    if (opts.rootRank == rank_) {
        check_one(inputs.size(), "scatter: input lists");
        check_list(inputs[0].size(), size_, "the input list");
        issue.read(inputs[0], call.dtype, &blocks);
        if (touch({outputs[0]}, inputs[0], rank_)) {
            Blocks own;

            issue.write_apart({outputs[0]}, call.dtype, &own);
            call.out = own.ptrs[0];
        } else {
            call.out = issue.write(outputs[0]).data_ptr();
        }
        call.in_blocks = blocks.get();
    } else {
        call.out = issue.write(outputs[0]).data_ptr();
    }
    call.root = static_cast<int32_t>(opts.rootRank);
    call.count = count_of(outputs[0]);
    issue.run(&call);
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                  const c10d::ReduceScatterOptions &opts)
{
    TORCH_CHECK_VALUE(!outputs.empty() && inputs.size() == outputs.size(),
                      "reduce_scatter: ", outputs.size(), " outputs, but ",
                      inputs.size(), " input lists");
    Issue issue(this,
                {OpType::REDUCE_SCATTER, "reduce_scatter", opts.asyncOp, opts.timeout},
                outputs.size());

    for (size_t i = 0; i < outputs.size(); i++) {
        check(outputs[i]);
        check_list(inputs[i].size(), size_, "the input list");
        tc_call call = make_call(TC_OP_REDUCE_SCATTER, outputs[i]);
        Blocks blocks, out;
        bool even = true;

        for (const at::Tensor &input : inputs[i]) {
            even = even && input.numel() == outputs[i].numel();
        }
        issue.read(inputs[i], call.dtype, &blocks);
        if (touch({outputs[i]}, inputs[i], rank_)) {
            issue.write_apart({outputs[i]}, call.dtype, &out);
        } else {
            issue.write(Tensors{outputs[i]}, call.dtype, &out);
        }
        call.kind = even ? TC_OP_REDUCE_SCATTER : TC_OP_REDUCE_SCATTER_V;
        set_redop(opts.reduceOp, &call);
        call.count = count_of(outputs[i]);
        call.in_blocks = blocks.get();
        call.out = out.ptrs[0];
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::reduce_scatter_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
    TORCH_CHECK_VALUE(inputs.size() == outputs.size(),
                      "reduce_scatter_tensor: ", inputs.size(), " inputs, but ",
                      outputs.size(), " outputs");
    if (inputs.empty()) {
        return done();
    }
    Issue issue(this,
                {OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", opts.asyncOp,
                 opts.timeout},
                outputs.size());

    for (size_t i = 0; i < inputs.size(); i++) {
        check(inputs[i]);
        check(outputs[i]);
        check_whole(inputs[i], outputs[i], size_, "input");
        at::Tensor in = issue.read(inputs[i]);
        at::Tensor out = outputs[i];
        tc_call call = make_call(TC_OP_REDUCE_SCATTER_SINGLE, in);
        Blocks apart;

        call.out = nullptr;
        if (touch({out}, {in}, rank_) &&
            out.const_data_ptr() !=
                static_cast<const char *>(in.const_data_ptr()) + rank_ * out.nbytes()) {
            issue.write_apart({out}, call.dtype, &apart);
            call.out = apart.ptrs[0];
        } else {
            call.out = issue.write(out).data_ptr();
        }
        set_redop(opts.reduceOp, &call);
        call.count = count_of(out);
        call.in_blocks = even_blocks(in, call.count);
        issue.run(&call);
    }
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                        const c10d::ReduceScatterOptions &opts)
{
    Tensors outputs = {output};
    Tensors inputs = {input};

    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

/* Exchanges ------------------------------------------------------------------------ */

namespace {

/* Splits `tensor` by rows; without splits evenly. */
void
split_rows(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size,
           const char *name, Blocks *blocks)
{
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    int64_t row = rows > 0 ? tensor.numel() / rows : 0;
    auto *at = static_cast<char *>(tensor.data_ptr());
    int64_t sum = 0;

    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, name, ": dimension 0 of ", rows,
                          " does not divide equally among ", size, " ranks");
    } else {
        check_list(splits.size(), size, name);
    }
    for (int r = 0; r < size; r++) {
        int64_t count = splits.empty() ? rows / size : splits[static_cast<size_t>(r)];

        TORCH_CHECK_VALUE(count >= 0, name, " split ", r, " is negative: ", count);
        sum += count;
        TORCH_CHECK_VALUE(sum <= rows, name, " splits sum to more than the ", rows,
                          " rows of the tensor");
        blocks->ptrs.push_back(at);
        blocks->counts.push_back(static_cast<uint64_t>(count * row));
        if (at != nullptr) {
            at += count * row * static_cast<int64_t>(tensor.element_size());
        }
    }
    TORCH_CHECK_VALUE(splits.empty() || sum == rows, name,
                      " splits do not match dimension 0: they sum to ", sum,
                      ", but it has ", rows, " rows");
}

} // namespace

TorchCommsBackend::WorkPtr
TorchCommsBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                 std::vector<int64_t> &output_splits,
                                 std::vector<int64_t> &input_splits,
                                 const c10d::AllToAllOptions &opts)
{
    bool even = output_splits.empty() && input_splits.empty();
    Issue issue(this,
                {OpType::ALLTOALL_BASE, "all_to_all", opts.asyncOp, opts.timeout});
    at::Tensor in = issue.read(input);
    at::Tensor out = issue.write(output);
    tc_call call =
        make_call(even ? TC_OP_ALL_TO_ALL_SINGLE : TC_OP_ALL_TO_ALL_V_SINGLE, in);
    Blocks in_blocks, out_blocks;

    TORCH_CHECK_VALUE(in.scalar_type() == out.scalar_type(),
                      "output and input must have the same dtype, but got ",
                      out.dtype(), " and ", in.dtype());
    if (touch({out}, {in}, -1)) {
        in = issue.read(in.clone());
    }
    issue.note_splits(input_splits, output_splits);
    split_rows(in, input_splits, size_, "input", &in_blocks);
    split_rows(out, output_splits, size_, "output", &out_blocks);
    if (even) {
        call.in_blocks = even_blocks(in, in_blocks.counts[0]);
        call.out_blocks = even_blocks(out, out_blocks.counts[0]);
    } else {
        call.in_blocks = in_blocks.get();
        call.out_blocks = out_blocks.get();
    }
    issue.run(&call);
    return issue.finish();
}

TorchCommsBackend::WorkPtr
TorchCommsBackend::alltoall(Tensors &outputs, Tensors &inputs,
                            const c10d::AllToAllOptions &opts)
{
    check_list(outputs.size(), size_, "the output list");
    check_list(inputs.size(), size_, "the input list");
    Issue issue(this, {OpType::ALLTOALL, "all_to_all", opts.asyncOp, opts.timeout});
    check(inputs[0]);
    tc_call call = make_call(TC_OP_ALL_TO_ALL, inputs[0]);
    Blocks in_blocks, out_blocks;

    issue.read(inputs, call.dtype, &in_blocks);
    if (touch(outputs, inputs, -1)) {
        issue.write_apart(outputs, call.dtype, &out_blocks);
    } else {
        issue.write(outputs, call.dtype, &out_blocks);
    }
    call.in_blocks = in_blocks.get();
    call.out_blocks = out_blocks.get();
    issue.run(&call);
    return issue.finish();
}

} // namespace torchcomms
