/* SPDX-License-Identifier: BSD-3-Clause */
/* From what gloo throws to errors of the core. */
#include "base/clock.h"
#include "torch/gloo.h"

namespace torchcomms {

const char *
gloo_op_name(tc_op_kind kind)
{
    static const char *const names[] = {
#define OP_NAME(id, name) #name,
        TC_OPS(OP_NAME)
#undef OP_NAME
    };

    return kind < TC_OP_KIND_COUNT ? names[kind] : "?";
}

namespace {

/* The first line, without the place in gloo's sources and its advice. */
std::string
shorten(const char *what)
{
    std::string text(what);

    text = text.substr(0, text.find('\n'));
    text = text.substr(0, text.find(". This is typically"));
    if (!text.empty() && text[0] == '[' && text.find("] ") != std::string::npos) {
        text = text.substr(text.find("] ") + 2);
    }
    return text;
}

/* Gloo has one class of exceptions for all of these. */
tc_status
status_of(const std::string &text)
{
    if (text.find("imed out") != std::string::npos ||
        text.find("timeout") != std::string::npos) {
        return TC_ERR_TIMEOUT;
    }
    if (text.find("Connection closed by peer") != std::string::npos ||
        text.find("Connection reset by peer") != std::string::npos) {
        return TC_ERR_PEER_CLOSED;
    }
    return TC_ERR_SYSTEM;
}

tc_status
report(const std::string &what, const char *cause, tc_error *err)
{
    std::string text = shorten(cause);
    tc_status status = status_of(text);

    if (err != nullptr) {
        err->status = status;
        snprintf(err->message, sizeof(err->message), "%s: gloo: %s", what.c_str(),
                 text.c_str());
    }
    return status;
}

} // namespace

tc_status
guard_gloo(const std::string &what, tc_error *err, const std::function<void()> &body)
{
    try {
        body();
        return TC_OK;
    } catch (const c10::Error &e) {
        return report(what, e.what_without_backtrace(), err);
    } catch (const std::exception &e) {
        return report(what, e.what(), err);
    }
}

std::chrono::milliseconds
gloo_time_left(const tc_op *op)
{
    constexpr uint64_t longest = 365 * UINT64_C(86400) * TC_NSEC_PER_SEC;
    uint64_t deadline = gloo_state(op)->deadline_ns;
    uint64_t now = tc_clock_ns();
    uint64_t left = deadline > now ? deadline - now : 0;

    left = std::min(left, longest) / TC_NSEC_PER_MSEC;
    return std::chrono::milliseconds(std::max<uint64_t>(left, 1));
}

} // namespace torchcomms
