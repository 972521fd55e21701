/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors, signals and communicators of the c10d shim. */
#include "torch/shim.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace torchcomms {

const tc_capi *core;
void *core_ctx;

void
throw_error(tc_status status, const tc_error &err)
{
    if (status == TC_INTERRUPTED) {
        pybind11::gil_scoped_acquire gil;

        if (PyErr_Occurred() != nullptr) {
            throw pybind11::error_already_set();
        }
        C10_THROW_ERROR(DistBackendError, "interrupted");
    }
    if (status == TC_ERR_INVALID_ARGUMENT) {
        C10_THROW_ERROR(ValueError, err.message);
    }
    std::rethrow_exception(to_exception(status, err));
}

std::exception_ptr
to_exception(tc_status status, const tc_error &err)
{
    std::string text = err.message;

    if (status == TC_ERR_TIMEOUT) {
        text = "The timeout ran out: " + text;
    }
    return std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

uint64_t
to_ns(std::chrono::milliseconds timeout)
{
    return timeout.count() > 0 ? static_cast<uint64_t>(timeout.count()) * 1000000 : 0;
}

namespace {

/* Ctrl-C is noticed this late; taking the GIL from a busy thread costs about as much.
 */
constexpr uint64_t kLookNs = 10 * 1000000;

uint64_t
now_ns()
{
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::steady_clock::now().time_since_epoch())
            .count());
}

} // namespace

SignalWatch::SignalWatch()
    : next_look_ns_(now_ns() + kLookNs), interrupt_{&SignalWatch::serve, this}
{
}

bool
SignalWatch::serve(void *ptr)
{
    auto *watch = static_cast<SignalWatch *>(ptr);
    uint64_t now = now_ns();

    if (now < watch->next_look_ns_) {
        return false;
    }
    watch->next_look_ns_ = now + kLookNs;
    /* Python runs handlers on the main thread only. */
    if (syscall(SYS_gettid) != getpid() || !Py_IsInitialized()) {
        return false;
    }
    pybind11::gil_scoped_acquire gil;
    /* The first for what other threads have left. */
    return Py_MakePendingCalls() != 0 || PyErr_CheckSignals() != 0;
}

Comm::~Comm()
{
    if (!is_closed()) {
        core->comm_drop(core_ctx, hold_);
    }
}

void
Comm::refuse_use() const
{
    const char *where = is_closed() ? "at the end of its process"
                                    : "in a forked child of the process that made it";

    C10_THROW_ERROR(DistBackendError, std::string("communicator '") +
                                          core->comm_name(comm_) + "' is used " +
                                          where);
}

namespace {

/* Between looks, so that Ctrl-C and a missing rank are noticed. */
constexpr std::chrono::milliseconds kSlice(20);

tc_status
store_failed(const char *action, const char *key, const char *what, tc_error *err)
{
    std::string first(what);

    first = first.substr(0, first.find('\n'));
    err->status = TC_ERR_STORE;
    snprintf(err->message, sizeof(err->message), "store: cannot %s key '%s': %s",
             action, key, first.c_str());
    return TC_ERR_STORE;
}

/* Runs `body` and turns what it throws into an error of the core. */
template <typename Body>
tc_status
guarded(const char *action, const char *key, tc_error *err, Body body)
{
    try {
        return body();
    } catch (const c10::Error &e) {
        return store_failed(action, key, e.what_without_backtrace(), err);
    } catch (const std::exception &e) {
        return store_failed(action, key, e.what(), err);
    }
}

tc_status
store_set(void *ctx, const char *key, const void *value, size_t bytes, tc_error *err)
{
    return guarded("set", key, err, [&] {
        const auto *data = static_cast<const uint8_t *>(value);

        static_cast<c10d::Store *>(ctx)->set(key,
                                             std::vector<uint8_t>(data, data + bytes));
        return TC_OK;
    });
}

bool
signal_arrived()
{
    pybind11::gil_scoped_acquire gil;

    return PyErr_CheckSignals() != 0;
}

/* By looking again and again: a store that waits is deaf to Ctrl-C and holds a lock
 * that other threads with the same object need. */
tc_status
store_get(void *ctx, const char *key, uint64_t timeout_ns, void *value, size_t capacity,
          size_t *bytes_p, tc_error *err)
{
    auto *store = static_cast<c10d::Store *>(ctx);
    uint64_t begin_ns = now_ns();
    std::chrono::microseconds delay(200);

    return guarded("get", key, err, [&] {
        while (!store->check({key})) {
            if (now_ns() - begin_ns > timeout_ns) {
                return store_failed("get", key,
                                    "it was not set in time: a rank is missing", err);
            }
            if (signal_arrived()) {
                return TC_INTERRUPTED;
            }
            usleep(static_cast<useconds_t>(delay.count()));
            delay = std::min<std::chrono::microseconds>(delay * 2, kSlice);
        }
        std::vector<uint8_t> found = store->get(key);

        if (found.size() > capacity) {
            return store_failed("get", key, "its value is longer than expected", err);
        }
        memcpy(value, found.data(), found.size());
        *bytes_p = found.size();
        return TC_OK;
    });
}

tc_status
store_add(void *ctx, const char *key, int64_t amount, int64_t *sum_p, tc_error *err)
{
    return guarded("add to", key, err, [&] {
        *sum_p = static_cast<c10d::Store *>(ctx)->add(key, amount);
        return TC_OK;
    });
}

} // namespace

c10::intrusive_ptr<c10d::Store>
store_of_adapter(const tc_store *store)
{
    if (store->set != store_set) {
        return {};
    }
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(
        static_cast<c10d::Store *>(store->ctx));
}

std::shared_ptr<Comm>
create_comm(const std::string &backend, const std::string &name,
            const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
            std::chrono::milliseconds timeout)
{
    tc_store adapter = {store.get(), store_set, store_get, store_add};
    tc_comm_options options = {};
    tc_py_hold *hold = nullptr;
    tc_error err = {};

    options.backend = backend.c_str();
    options.name = name.c_str();
    options.rank = rank;
    options.size = size;
    options.device = {TC_DEVICE_CPU, -1};
    options.timeout_ns = to_ns(timeout);
    options.store = &adapter;
    tc_status status = core->comm_create(core_ctx, &options, &hold, &err);
    if (status != TC_OK) {
        throw_error(status, err);
    }
    return std::make_shared<Comm>(hold);
}

void
check_configured(const Comm &comm)
{
    tc_error err = {};

    if (core->comm_size(comm.peek()) == 0) {
        tc_status status = core->comm_check_usable(comm.peek(), &err);

        if (status != TC_OK) {
            throw_error(status, err);
        }
    }
}

} // namespace torchcomms
