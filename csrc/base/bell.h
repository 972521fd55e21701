/* SPDX-License-Identifier: BSD-3-Clause */
/* A word to sleep on and to wake, shared between processes, without lost wake-ups. */
#ifndef TC_BASE_BELL_H
#define TC_BASE_BELL_H

#include "base/atomic.h"

/* Protocol. A sleeper: tc_bell_prepare, look once more at what it waits for, then
 * tc_bell_sleep or tc_bell_cancel. A waker: publish, then tc_bell_ring. Both sides put
 * a sequentially consistent operation between their write and their read, so one of
 * them sees the other: either the sleeper's last look sees what was published, or the
 * waker sees the sleeper. */
typedef struct tc_bell {
    uint32_t word;
    uint32_t sleepers;
    uint32_t pad[14];
} tc_bell;

/* Returns the word to pass to tc_bell_sleep. */
static inline uint32_t
tc_bell_prepare(tc_bell *bell)
{
    tc_fetch_add_seq_cst_u32(&bell->sleepers, 1);
    return tc_load_seq_cst_u32(&bell->word);
}

static inline void
tc_bell_cancel(tc_bell *bell)
{
    tc_fetch_sub_seq_cst_u32(&bell->sleepers, 1);
}

/* Sleeps until the bell rings after `word` was read, a signal, or `timeout_ns`. Ends
 * the preparation. */
void
tc_bell_sleep(tc_bell *bell, uint32_t word, uint64_t timeout_ns);

/* Wakes every sleeper, out of line. */
void
tc_bell_wake(tc_bell *bell);

/* After a sequentially consistent store of what the sleepers wait for. */
static inline void
tc_bell_ring(tc_bell *bell)
{
    if (tc_load_seq_cst_u32(&bell->sleepers) != 0) {
        tc_bell_wake(bell);
    }
}

#endif
