/* SPDX-License-Identifier: BSD-3-Clause */
/* Round trip of a bare cache line between two processes. */
#include "base/line.h"

#include <sched.h>

#include "base/atomic.h"
#include "base/clock.h"

enum {
    BURSTS = 8,
    TRIPS = 32, /* of a burst */
    POLLS = 200, /* before the other may need this CPU: about 5 us */
};

/* No burst begins later than this. */
#define MOST_NS (TC_NSEC_PER_MSEC / 2)

static tc_status
await_change(const uint32_t *word, uint32_t old, uint64_t timeout_ns, uint32_t *new_p,
             tc_error *err)
{
    uint64_t deadline = TC_DEADLINE_NONE;

    for (uint32_t poll = 1;; poll++) {
        uint32_t now = tc_load_acquire_u32(word);

        if (now != old) {
            *new_p = now;
            return TC_OK;
        }
        tc_cpu_relax();
        if (poll % POLLS != 0) {
            continue;
        }
        if (deadline == TC_DEADLINE_NONE) {
            deadline = tc_deadline_after(tc_clock_ns(), timeout_ns);
        } else if (tc_clock_ns() > deadline) {
            return tc_error_set(err, TC_ERR_TIMEOUT,
                                "line round trip: no answer within %.3g s",
                                (double)timeout_ns / TC_NSEC_PER_SEC);
        }
        sched_yield();
    }
}

static tc_status
make_trip(tc_line *line, uint32_t last, uint64_t timeout_ns, tc_error *err)
{
    uint32_t old = tc_load_relaxed_u32(&line->there);
    uint32_t seen;

    tc_store_release_u32(&line->there, ((old | 1) + 1) | last);
    return await_change(&line->back, old, timeout_ns, &seen, err);
}

static tc_status
lead(tc_line *line, uint64_t timeout_ns, double *ns_p, tc_error *err)
{
    uint64_t fastest = UINT64_MAX;
    uint64_t begun;

    /* Not timed: the follower may come later, and both touch the page. */
    TC_TRY(make_trip(line, 0, timeout_ns, err));
    begun = tc_clock_ns();
    for (int burst = 0; burst < BURSTS && tc_clock_ns() - begun < MOST_NS; burst++) {
        uint64_t start = tc_clock_ns();
        uint64_t taken;

        for (int i = 0; i < TRIPS; i++) {
            TC_TRY(make_trip(line, 0, timeout_ns, err));
        }
        taken = tc_clock_ns() - start;
        fastest = taken < fastest ? taken : fastest;
    }
    TC_TRY(make_trip(line, 1, timeout_ns, err));
    *ns_p = (double)fastest / TRIPS;
    return TC_OK;
}

static tc_status
follow(tc_line *line, uint64_t timeout_ns, double *ns_p, tc_error *err)
{
    uint32_t seen = tc_load_relaxed_u32(&line->back);

    do {
        TC_TRY(await_change(&line->there, seen, timeout_ns, &seen, err));
        tc_store_release_u32(&line->back, seen);
    } while ((seen & 1) == 0);
    *ns_p = 0;
    return TC_OK;
}

tc_status
tc_line_round_trip(tc_line *line, bool leads, uint64_t timeout_ns, double *ns_p,
                   tc_error *err)
{
    return leads ? lead(line, timeout_ns, ns_p, err)
                 : follow(line, timeout_ns, ns_p, err);
}
