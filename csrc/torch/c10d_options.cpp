/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of the backend. */
#include "torch/c10d_options.h"

namespace torchcomms {

namespace {

constexpr char kPriority[] = "is_high_priority_stream";

} // namespace

BackendOptions::BackendOptions(tc_comm *comm, Milliseconds limit)
    : Options("torchcomms", limit), abort_process(core->comm_abort_process(comm)),
      limit_(limit)
{
    const tc_hint *list;
    size_t count = core->comm_hints(comm, &list);

    group_name = core->comm_name(comm);
    for (size_t i = 0; i < count; i++) {
        hints[list[i].key] = list[i].value;
    }
    auto priority = hints.find(kPriority);
    high_priority = priority != hints.end() && priority->second == "true";
}

c10::intrusive_ptr<BackendOptions>
BackendOptions::for_child() const
{
    auto copy = c10::make_intrusive<BackendOptions>(*this);

    copy->timeout = limit_;
    copy->limit_given_ = false;
    return copy;
}

void
BackendOptions::set_limit(Milliseconds limit)
{
    TORCH_CHECK_VALUE(limit.count() > 0, "timeout must be positive, but got ",
                      limit.count(), " ms");
    limit_ = limit;
    limit_given_ = true;
}

std::map<std::string, std::string>
BackendOptions::all_hints() const
{
    auto all = hints;

    /* A hint given by hand decides, as in new_comm. */
    if (high_priority) {
        all.emplace(kPriority, "true");
    }
    return all;
}

} // namespace torchcomms
