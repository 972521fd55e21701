/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of the backend: what a child of `split` becomes. */
#ifndef TC_TORCH_C10D_OPTIONS_H
#define TC_TORCH_C10D_OPTIONS_H

#include <map>

#include "torch/shim.h"

namespace torchcomms {

/* c10d's own field `timeout` is what c10d writes before it splits, also where its user
 * gave none. So the timeout of operations is another one, and it decides for a child
 * only where somebody has set it. */
class BackendOptions : public c10d::Backend::Options {
  public:
    using Milliseconds = std::chrono::milliseconds;

    explicit BackendOptions(Milliseconds limit = std::chrono::seconds(600))
        : Options("torchcomms", limit), limit_(limit)
    {
    }
    /* Those that `comm` has. */
    BackendOptions(tc_comm *comm, Milliseconds limit);

#ifdef C10D_BACKEND_HAS_HOOKS
    c10::intrusive_ptr<Options>
    clone() const override
    {
        return c10::make_intrusive<BackendOptions>(*this);
    }
#endif

    /* As c10d writes into it: its timeout counts until somebody sets ours. */
    c10::intrusive_ptr<BackendOptions>
    for_child() const;

    Milliseconds
    limit() const
    {
        return limit_;
    }
    void
    set_limit(Milliseconds limit);
    Milliseconds
    child_limit() const
    {
        return limit_given_ ? limit_ : timeout;
    }
    /* With the priority, which backends read as a hint. */
    std::map<std::string, std::string>
    all_hints() const;

    bool abort_process = true;
    bool high_priority = false;
    c10::intrusive_ptr<c10d::Store> store;
    std::map<std::string, std::string> hints;

  private:
    Milliseconds limit_;
    bool limit_given_ = false;
};

} // namespace torchcomms

#endif
