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

#ifdef TC_MODEL
/* The model's scheduler in place of the kernel. There is no timeout: who is not woken
 * sleeps for ever, so that a test sees a lost wake-up. */
void
tc_model_sleep(const uint32_t *word, uint32_t expected);

void
tc_model_wake(const uint32_t *word);
#endif

static void
wait_for_change(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
#ifdef TC_MODEL
    (void)timeout_ns;
    tc_model_sleep(word, expected);
#else
    struct timespec t = {
        .tv_sec = (time_t)(timeout_ns / TC_NSEC_PER_SEC),
        .tv_nsec = (long)(timeout_ns % TC_NSEC_PER_SEC),
    };

    /* Not FUTEX_PRIVATE_FLAG: the word is shared between processes. */
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0);
#endif
}

static void
wake_all(uint32_t *word)
{
#ifdef TC_MODEL
    tc_model_wake(word);
#else
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#endif
}

void
tc_bell_sleep(tc_bell *bell, uint32_t word, uint64_t timeout_ns)
{
    wait_for_change(&bell->word, word, timeout_ns);
    tc_bell_cancel(bell);
}

void
tc_bell_wake(tc_bell *bell)
{
    tc_fetch_add_seq_cst_u32(&bell->word, 1);
    wake_all(&bell->word);
}
