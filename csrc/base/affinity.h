/* SPDX-License-Identifier: BSD-3-Clause */
/* Which CPUs a rank may run on, and whether the ranks can each have one. */
#ifndef TC_BASE_AFFINITY_H
#define TC_BASE_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TC_AFFINITY_WORDS = 16,
    TC_AFFINITY_CPUS = 1024, /* CPUs above are not told apart */
};

/* The CPUs the calling thread may run on; all of them where the kernel does not say. */
void
tc_affinity_read(uint64_t mask_p[TC_AFFINITY_WORDS]);

/* True when the ranks cannot each run on a CPU of their own. A mask without any CPU
 * counts as a rank that has none. */
bool
tc_affinity_oversubscribed(const uint64_t (*masks)[TC_AFFINITY_WORDS], int32_t ranks);

#endif
