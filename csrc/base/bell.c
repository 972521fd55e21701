/* SPDX-License-Identifier: BSD-3-Clause */
/* The futex calls behind base/bell.h. */
#include "base/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void
tc_bell_sleep(tc_bell *bell, uint32_t word, uint64_t timeout_ns)
{
    struct timespec t = {
        .tv_sec = (time_t)(timeout_ns / TC_NSEC_PER_SEC),
        .tv_nsec = (long)(timeout_ns % TC_NSEC_PER_SEC),
    };

    /* Not FUTEX_PRIVATE_FLAG: the word is shared between processes. */
    syscall(SYS_futex, &bell->word, FUTEX_WAIT, word, &t, NULL, 0);
    tc_bell_cancel(bell);
}

void
tc_bell_wake(tc_bell *bell)
{
    tc_fetch_add_seq_cst_u32(&bell->word, 1);
    syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
