/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors, staging and the way of a call into the core. */
#include "torch/c10d_issue.h"

#include "torch/c10d_backend.h"

namespace torchcomms {

void
set_redop(const c10d::ReduceOp &op, tc_call *call)
{
    call->factor = 1.0;
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        call->redop = TC_REDOP_SUM;
        return;
    case c10d::ReduceOp::AVG:
        call->redop = TC_REDOP_AVG;
        return;
    case c10d::ReduceOp::PRODUCT:
        call->redop = TC_REDOP_PRODUCT;
        return;
    case c10d::ReduceOp::MIN:
        call->redop = TC_REDOP_MIN;
        return;
    case c10d::ReduceOp::MAX:
        call->redop = TC_REDOP_MAX;
        return;
    case c10d::ReduceOp::BAND:
        call->redop = TC_REDOP_BAND;
        return;
    case c10d::ReduceOp::BOR:
        call->redop = TC_REDOP_BOR;
        return;
    case c10d::ReduceOp::BXOR:
        call->redop = TC_REDOP_BXOR;
        return;
    case c10d::ReduceOp::PREMUL_SUM: {
        const auto *more =
            static_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());

        call->redop = TC_REDOP_PREMUL_SUM;
        call->factor = more->tensor_factor.defined()
                           ? more->tensor_factor.item<double>()
                           : more->double_factor;
        return;
    }
    default:
        C10_THROW_ERROR(ValueError,
                        c10::str("Unsupported reduce op ", static_cast<int>(op.op_)));
    }
}

/* Ranges --------------------------------------------------------------------------- */

bool
touch(const std::vector<at::Tensor> &written, const std::vector<at::Tensor> &read,
      int own)
{
    struct Range {
        const char *begin;
        const char *end;
        bool written;
    };
    c10::SmallVector<Range, 16> ranges;
    auto add = [&](const at::Tensor &t, bool is_written) {
        const auto *at = static_cast<const char *>(t.const_data_ptr());

        if (t.nbytes() > 0) {
            ranges.push_back({at, at + t.nbytes(), is_written});
        }
    };

    for (const at::Tensor &t : written) {
        add(t, true);
    }
    for (size_t i = 0; i < read.size(); i++) {
        size_t place = read.size() == 1 ? static_cast<size_t>(own) : i;
        size_t target = written.size() == 1 ? 0 : place;
        bool same =
            (read.size() == 1 || written.size() > 1 || i == static_cast<size_t>(own)) &&
            target < written.size() &&
            read[i].const_data_ptr() == written[target].const_data_ptr() &&
            read[i].nbytes() == written[target].nbytes();

        if (!same || static_cast<int>(place) != own) {
            add(read[i], false);
        }
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
    const char *written_end = nullptr;
    const char *read_end = nullptr;
    for (const Range &r : ranges) {
        if (r.begin < written_end || (r.written && r.begin < read_end)) {
            return true;
        }
        const char *&end = r.written ? written_end : read_end;

        end = std::max(end, r.end);
    }
    return false;
}

/* Issue ---------------------------------------------------------------------------- */

Issue::Issue(TorchCommsBackend *backend, const How &how, size_t operations)
    : backend_(backend), how_(how), audience_(find_audience(*backend)),
      inline_wait_(!how.async && operations == 1 && !is_profiled() &&
                   backend->coalesced() == nullptr),
      timeout_ns_(to_ns(how.timeout.count() > 0 ? how.timeout : backend->timeout()))
{
    backend->check_ranks();
    drain_keeps();
}

std::unique_ptr<Issue::Audience>
Issue::find_audience(const TorchCommsBackend &backend)
{
    bool profiler = at::hasCallbacks();
    bool hooks = core->comm_has_hooks(backend.comm().peek());

    if (C10_LIKELY(!profiler && !hooks)) {
        return nullptr;
    }
    auto audience = std::make_unique<Audience>();

    audience->profiler = profiler;
    return audience;
}

/* What was issued before a later operation was refused goes on without us. */
Issue::~Issue()
{
    for (tc_work *work : works_) {
        core->work_release(work);
    }
    if (keep_ != nullptr) {
        keep_->unref();
    }
}

Keep *
Issue::keep()
{
    if (keep_ == nullptr) {
        keep_ = new Keep();
    }
    return keep_;
}

int32_t *
Issue::source()
{
    return &keep()->source;
}

namespace {

bool
is_plain(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

} // namespace

at::Tensor
Issue::stage(const at::Tensor &tensor, bool fill)
{
    at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor memory = at::empty(
        tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));

    if (fill) {
        memory.copy_(tensor);
    }
    return memory;
}

void
Issue::note(const at::Tensor &tensor)
{
    if (C10_UNLIKELY(audience_ != nullptr)) {
        audience_->inputs.push_back(tensor);
    }
}

void
Issue::note_splits(const std::vector<int64_t> &inputs,
                   const std::vector<int64_t> &outputs)
{
    if (C10_UNLIKELY(audience_ != nullptr)) {
        audience_->input_splits = inputs;
        audience_->output_splits = outputs;
    }
}

/* Of the operation that is about to be issued. */
Shown
Issue::show()
{
    const auto &inputs = audience_->inputs;
    Shown shown = {{inputs.begin() + static_cast<ptrdiff_t>(audience_->shown_inputs),
                    inputs.end()},
                   {outputs_.begin() + static_cast<ptrdiff_t>(audience_->shown_outputs),
                    outputs_.end()},
                   audience_->input_splits,
                   audience_->output_splits};

    audience_->shown_inputs = inputs.size();
    audience_->shown_outputs = outputs_.size();
    return shown;
}

/* One event for each operation; it lasts to the next or to the end of the call. */
void
Issue::announce(const tc_call &call, const Shown &shown)
{
    bool p2p = call.kind == TC_OP_SEND || call.kind == TC_OP_RECV;
    CommsDetails details = {};

    details.sequence = static_cast<int64_t>(backend_->sequence()) + (p2p ? 0 : 1);
    details.p2p = p2p;
    details.async = how_.async;
    details.inputs = shown.inputs;
    details.outputs = shown.outputs;
    details.input_splits = shown.input_splits;
    details.output_splits = shown.output_splits;
    const auto &tensors = details.inputs.empty() ? details.outputs : details.inputs;
    details.dtype = tensors.empty() ? at::kByte : tensors[0].scalar_type();
    audience_->event.reset();
    audience_->event = std::make_unique<ParamComms>(*backend_, call, details);
}

at::Tensor
Issue::read(const at::Tensor &tensor)
{
    backend_->check(tensor);
    note(tensor);
    at::Tensor memory = is_plain(tensor) ? tensor : stage(tensor, true);

    tensors_.push_back(memory);
    return memory;
}

at::Tensor
Issue::write(const at::Tensor &tensor)
{
    backend_->check(tensor);
    outputs_.push_back(tensor);
    if (is_plain(tensor)) {
        tensors_.push_back(tensor);
        return tensor;
    }
    at::assert_no_internal_overlap(tensor);
    at::Tensor memory = stage(tensor, false);
    copies_.push_back({tensor, memory});
    tensors_.push_back(memory);
    return memory;
}

at::Tensor
Issue::update(const at::Tensor &tensor)
{
    at::Tensor memory = write(tensor);

    note(tensor);
    if (!copies_.empty() && copies_.back().from.is_same(memory)) {
        at::AutoDispatchBelowADInplaceOrView guard;

        memory.copy_(tensor);
    }
    return memory;
}

namespace {

void
check_dtype(const at::Tensor &tensor, tc_dtype dtype)
{
    TORCH_CHECK_VALUE(to_dtype(tensor) == dtype,
                      "tensors of one call must have the same dtype, but got ",
                      tensor.dtype(), " among others");
}

void
add_block(const at::Tensor &memory, Blocks *blocks)
{
    blocks->ptrs.push_back(memory.data_ptr());
    blocks->counts.push_back(static_cast<uint64_t>(memory.numel()));
}

} // namespace

void
Issue::read(const std::vector<at::Tensor> &tensors, tc_dtype dtype, Blocks *blocks)
{
    for (const at::Tensor &tensor : tensors) {
        check_dtype(tensor, dtype);
        add_block(read(tensor), blocks);
    }
}

void
Issue::write(const std::vector<at::Tensor> &tensors, tc_dtype dtype, Blocks *blocks)
{
    for (const at::Tensor &tensor : tensors) {
        check_dtype(tensor, dtype);
        add_block(write(tensor), blocks);
    }
}

void
Issue::write_apart(const std::vector<at::Tensor> &tensors, tc_dtype dtype,
                   Blocks *blocks)
{
    for (const at::Tensor &tensor : tensors) {
        backend_->check(tensor);
        check_dtype(tensor, dtype);
        at::assert_no_internal_overlap(tensor);
        at::Tensor memory = stage(tensor, false);

        outputs_.push_back(tensor);
        copies_.push_back({tensor, memory});
        tensors_.push_back(memory);
        add_block(memory, blocks);
    }
}

void
Issue::run(tc_call *call)
{
    Shown shown;
    std::unique_ptr<HookedCall> hooks;

    call->async = !inline_wait_;
    if (C10_UNLIKELY(audience_ != nullptr)) {
        tc_hook_event event = {};

        /* A batch was announced, and its tensors shown, one by one. */
        if (call->kind != TC_OP_BATCH) {
            shown = show();
            if (audience_->profiler) {
                announce(*call, shown);
            }
        }
        event.kind = call->kind;
        event.async = how_.async;
        event.call = call;
        hooks = begin_hooks(backend_->comm().get(), event, shown);
    }
    tc_work *work = launch(*call);
    if (C10_UNLIKELY(hooks != nullptr)) {
        hooks->end(work, nullptr);
    }
}

/* The work if the operation goes on, which is then in works_. */
tc_work *
Issue::launch(const tc_call &call)
{
    tc_comm *comm = backend_->comm().get();
    tc_work *work = nullptr;
    tc_error err = {};
    tc_status status = core->comm_issue(comm, &call, timeout_ns_, &work, &err);

    if (status == TC_PENDING && inline_wait_) {
        SignalWatch watch;

        status = core->work_wait(work, UINT64_MAX, watch.get(), &err);
        /* Called away: the operation goes on without the caller. */
        if (status == TC_INTERRUPTED) {
            keep()->tensors.assign(tensors_.begin(), tensors_.end());
            keep()->own(work);
        }
        core->work_release(work);
    } else if (status == TC_PENDING) {
        Keep *kept = keep();

        kept->tensors.insert(kept->tensors.end(), tensors_.begin(), tensors_.end());
        tensors_.clear();
        kept->own(work);
        works_.push_back(work);
        return work;
    }
    if (status != TC_OK) {
        core->hooks_call_failed(comm, status);
        throw_error(status, err);
    }
    return nullptr;
}

void
Issue::move_to(Coalesced *batch, const tc_call &call)
{
    tc_p2p entry = {};

    if (C10_UNLIKELY(is_profiled())) {
        announce(call, show());
    }
    entry.kind = call.kind;
    entry.dtype = call.dtype;
    entry.peer = call.root;
    entry.tag = call.tag;
    entry.count = call.count;
    entry.buf = call.kind == TC_OP_SEND ? const_cast<void *>(call.in) : call.out;
    batch->entries.push_back(entry);
    batch->tensors.insert(batch->tensors.end(), tensors_.begin(), tensors_.end());
    batch->copies.insert(batch->copies.end(), copies_.begin(), copies_.end());
}

void
Issue::take_from(Coalesced *batch)
{
    tensors_.append(batch->tensors.begin(), batch->tensors.end());
    copies_ = std::move(batch->copies);
}

void
Issue::join(const c10::intrusive_ptr<TorchCommsWork> &work)
{
    parts_.push_back(work);
}

c10::intrusive_ptr<c10d::Work>
Issue::finish()
{
    if (!c10d::isP2POp(how_.type) && how_.type != c10d::OpType::COALESCED) {
        backend_->next_sequence();
    }
    if (inline_wait_) {
        run_copies(copies_);
        return nullptr;
    }
    std::string title;
    TorchCommsWork::Event event = {};

    if (C10_UNLIKELY(is_profiled())) {
        title = backend_->title(how_.title);
        event = {title.c_str(), &audience_->inputs};
    }
    auto work = c10::make_intrusive<TorchCommsWork>(
        backend_->getRank(), how_.type, event, backend_->sequence(), timeout_ns_);
    for (tc_work *pending : works_) {
        work->add(pending);
    }
    works_.clear();
    for (const auto &part : parts_) {
        work->join(part);
    }
    work->begin(keep_, std::move(copies_), std::move(outputs_));
    keep_ = nullptr;
    if (backend_->coalesced() != nullptr) {
        backend_->coalesced()->works.push_back(work);
        return work;
    }
    if (!how_.async) {
        work->wait(kNoTimeout);
        return nullptr;
    }
    return work;
}

} // namespace torchcomms
