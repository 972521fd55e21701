/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the c10d shim share: the core's table, errors, signals. */
#ifndef TC_TORCH_SHIM_H
#define TC_TORCH_SHIM_H

#include "torch/torch.h"

#include "python/capi.h"

namespace torchcomms {

/* Of torchcomms._core; set when the module is loaded, constant afterwards. */
extern const tc_capi *core;
extern void *core_ctx;

/* True once the process exits: nothing of the core may be touched any more. */
bool
is_closed();

/* A wrong argument is a ValueError, what went wrong later a DistBackendError; an
 * interrupt is the Python exception that is set already. */
[[noreturn]] void
throw_error(tc_status status, const tc_error &err);

/* The DistBackendError of an operation that ended with `status`. */
std::exception_ptr
to_exception(tc_status status, const tc_error &err);

/* Nanoseconds; c10d's "not given" and "none" are 0. */
uint64_t
to_ns(std::chrono::milliseconds timeout);

/* For a wait without the GIL: lets the main thread run its signal handlers. */
class SignalWatch {
  public:
    SignalWatch();
    const tc_interrupt *
    get() const
    {
        return &interrupt_;
    }

  private:
    static bool
    serve(void *watch);

    uint64_t next_look_ns_;
    tc_interrupt interrupt_;
};

/* A communicator as the shim holds it. */
class Comm {
  public:
    explicit Comm(tc_py_hold *hold)
        : hold_(hold), comm_(core->comm_of(hold)), generation_(core->generation())
    {
    }
    Comm(const Comm &) = delete;
    Comm &
    operator=(const Comm &) = delete;
    ~Comm();

    /* Refuses a child of the process that made it, and a process that ends. */
    tc_comm *
    get() const
    {
        if (is_lost()) {
            refuse_use();
        }
        return comm_;
    }

    /* Whether there is nothing left to leave: the process is another, or at its end. */
    bool
    is_lost() const
    {
        return is_closed() || generation_ != core->generation();
    }

    /* For queries, which a forked child may make too. */
    tc_comm *
    peek() const
    {
        return comm_;
    }

  private:
    [[noreturn]] void
    refuse_use() const;

    tc_py_hold *hold_;
    tc_comm *comm_;
    uint32_t generation_;
};

/* c10d's store behind one of `create_comm`; NULL for every other. */
c10::intrusive_ptr<c10d::Store>
store_of_adapter(const tc_store *store);

/* Refuses a communicator that has no ranks. */
void
check_configured(const Comm &comm);

/* A communicator of rank `rank` of `size`, made without looking at the environment. */
std::shared_ptr<Comm>
create_comm(const std::string &backend, const std::string &name,
            const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
            std::chrono::milliseconds timeout);

} // namespace torchcomms

#endif
