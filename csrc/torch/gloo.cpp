/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the backend `gloo`: life of a communicator, its queue, its children. */
#include "torch/gloo.h"

#include <list>

#include "base/clock.h"
#include "torch/gloo_split.h"

namespace torchcomms {

namespace {

using GlooPtr = std::shared_ptr<GlooComm>;

/* Communicators that were left and still have something on the way. */
std::mutex lingering_mutex;
std::list<GlooPtr> lingering; /* guarded by lingering_mutex */
std::condition_variable lingering_less;

GlooPtr &
gloo_of(void *ctx)
{
    return *static_cast<GlooPtr *>(ctx);
}

} // namespace

/* Life ----------------------------------------------------------------------------- */

GlooComm::GlooComm(const tc_comm_config *config,
                   c10::intrusive_ptr<c10d::Backend> group, pybind11::object parts)
    : rank_(config->rank), size_(config->size), name_(config->name),
      host_(config->host), group_(std::move(group)),
      parts_(std::make_unique<pybind11::object>(std::move(parts)))
{
}

GlooComm::~GlooComm() = default;

void
GlooComm::start_thread(void (*body)(GlooComm *comm))
{
    GlooPtr self = shared_from_this();
    std::lock_guard<std::mutex> lock(mutex_);

    std::thread([self, body] {
        body(self.get());
        self->thread_ended();
    }).detach();
    threads_++;
}

void
GlooComm::thread_ended()
{
    std::unique_lock<std::mutex> lock(mutex_);
    bool last = --threads_ == 0 && lingers_;

    ended_.notify_all();
    lock.unlock();
    if (last) {
        close();
        std::lock_guard<std::mutex> list(lingering_mutex);
        lingering.remove(shared_from_this());
        lingering_less.notify_all();
    }
}

/* Connections end here, the store's after them. */
void
GlooComm::close()
{
    group_.reset();
    if (is_closed() || !Py_IsInitialized()) {
        (void)parts_.release(); /* the interpreter is gone */
        return;
    }
    pybind11::gil_scoped_acquire gil;
    /* The communicator may be dropped while an exception is on its way. */
    pybind11::error_scope pending;
    try {
        pybind11::module_::import("torchcomms._comms_gloo").attr("_leave")(*parts_);
    } catch (pybind11::error_already_set &e) {
        e.discard_as_unraisable("torchcomms: leaving a communicator of gloo");
    }
    parts_.reset();
}

void
GlooComm::finalize()
{
    bool quiet = p2p_.leave();
    std::unique_lock<std::mutex> lock(mutex_);

    leaving_ = true;
    wake_.notify_all();
    if (quiet) {
        ended_.wait(lock, [&] { return threads_ == 0; });
    } else if (threads_ > 0) {
        std::lock_guard<std::mutex> list(lingering_mutex);

        lingers_ = true;
        lingering.push_back(shared_from_this());
        return;
    }
    lock.unlock();
    close();
}

void
gloo_at_exit()
{
    std::unique_lock<std::mutex> lock(lingering_mutex);
    auto on_the_way = [] {
        return std::any_of(lingering.begin(), lingering.end(),
                           [](const GlooPtr &comm) { return comm->has_sends(); });
    };

    /* Each send has a deadline, after which it is no longer waited for. */
    while (on_the_way()) {
        lingering_less.wait_for(lock, std::chrono::milliseconds(20));
    }
}

/* Queue ---------------------------------------------------------------------------- */

tc_status
GlooComm::issue(tc_op *op)
{
    tc_status status = check_gloo_call(op->call, op->error);

    if (status != TC_OK) {
        return status;
    }
    gloo_state(op)->deadline_ns = tc_deadline_after(tc_clock_ns(), op->timeout_ns);
    if (op->call.kind == TC_OP_SEND || op->call.kind == TC_OP_RECV ||
        op->call.kind == TC_OP_BATCH) {
        return p2p_.issue(op);
    }
    if (!serving_.exchange(true)) {
        status = guard_gloo(gloo_op_name(op->call.kind), op->error,
                            [&] { start_thread(run_queue); });
        if (status != TC_OK) {
            serving_.store(false);
            return status;
        }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    op->next = nullptr;
    queue_.push_back(op);
    wake_.notify_one();
    return TC_PENDING;
}

void
GlooComm::run_queue(GlooComm *comm)
{
    comm->serve();
}

/* A collective that failed leaves connections closed, and ranks at different places. */
tc_status
GlooComm::run(tc_op *op)
{
    const char *kind = gloo_op_name(op->call.kind);

    if (!broken_.empty()) {
        op->error->status = TC_ERR_BROKEN;
        snprintf(op->error->message, sizeof(op->error->message),
                 "%s of communicator '%s', which is broken: %s", kind, name_.c_str(),
                 broken_.c_str());
        return TC_ERR_BROKEN;
    }
    std::chrono::milliseconds left = gloo_time_left(op);
    tc_status status =
        guard_gloo(std::string(kind) + " of communicator '" + name_ + "'", op->error,
                   [&] { run_gloo_collective(this, op->call, left); });
    if (status != TC_OK) {
        broken_ = op->error->message;
    }
    return status;
}

void
GlooComm::serve()
{
    std::unique_lock<std::mutex> lock(mutex_);

    for (;;) {
        wake_.wait(lock, [&] { return leaving_ || !queue_.empty(); });
        if (queue_.empty()) {
            return;
        }
        tc_op *op = queue_.front();

        queue_.pop_front();
        lock.unlock();
        host_->complete(op, run(op));
        lock.lock();
    }
}

/* Table ---------------------------------------------------------------------------- */

namespace {

tc_status
gloo_create(const tc_comm_config *config, void **comm_p, tc_error *err)
{
    return gloo_open(config, config->store, nullptr, std::string(), comm_p, err);
}

tc_status
gloo_finalize(void *ctx, tc_error *)
{
    gloo_of(ctx)->finalize();
    return TC_OK;
}

void
gloo_destroy(void *ctx)
{
    if (!gloo_of(ctx)->is_left()) {
        gloo_of(ctx)->finalize();
    }
    delete static_cast<GlooPtr *>(ctx);
}

tc_status
gloo_issue(void *ctx, tc_op *op)
{
    return gloo_of(ctx)->issue(op);
}

/* Read by torchcomms._comms_gloo. */
const char *const kHints[] = {"hostname", "interface", "lazy", nullptr};

tc_backend
make_table()
{
    tc_backend table = {};

    table.struct_size = sizeof(table);
    table.abi = TC_BACKEND_ABI;
    table.name = "gloo";
    table.device_type = TC_DEVICE_CPU;
    table.comm_create = gloo_create;
    table.split_begin = gloo_split_begin;
    table.split_end = gloo_split_end;
    table.comm_finalize = gloo_finalize;
    table.comm_destroy = gloo_destroy;
    for (int kind = TC_OP_SEND; kind <= TC_OP_GATHER_SINGLE; kind++) {
        table.issue[kind] = gloo_issue;
    }
    table.issue[TC_OP_BATCH] = gloo_issue;
    table.hints = kHints;
    table.flags = TC_BACKEND_NO_WAIT_BLOCKING | TC_BACKEND_NUMBERS_CHILDREN;
    return table;
}

} // namespace

void
register_gloo()
{
    tc_backend table = make_table();
    tc_error err = {};
    tc_status status = core->backend_add("gloo", &table, &err);

    if (status != TC_OK) {
        throw_error(status, err);
    }
}

} // namespace torchcomms
