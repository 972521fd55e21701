/* SPDX-License-Identifier: BSD-3-Clause */
/* Monotonic time, deadlines, and the time of day. */
#ifndef TC_BASE_CLOCK_H
#define TC_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TC_NSEC_PER_SEC UINT64_C(1000000000)
#define TC_NSEC_PER_MSEC UINT64_C(1000000)
#define TC_DEADLINE_NONE UINT64_MAX

static inline uint64_t
tc_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * TC_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Since 1970, as Python's time.time_ns(). */
static inline uint64_t
tc_clock_wall_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * TC_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* now + timeout without overflow. */
static inline uint64_t
tc_deadline_after(uint64_t now_ns, uint64_t timeout_ns)
{
    return timeout_ns > TC_DEADLINE_NONE - now_ns ? TC_DEADLINE_NONE
                                                  : now_ns + timeout_ns;
}

#endif
