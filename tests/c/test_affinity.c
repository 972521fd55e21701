/* SPDX-License-Identifier: BSD-3-Clause */
/* Affinity masks: reading them, and whether ranks can each have a CPU. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "support/check.h"

#define RANKS 8

static void
test_read(void)
{
    uint64_t mask[TC_AFFINITY_WORDS];
    cpu_set_t all;
    cpu_set_t one;
    int cpu = 0;
    int count = 0;

    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    tc_affinity_read(mask);
    for (int i = 0; i < TC_AFFINITY_WORDS; i++) {
        count += __builtin_popcountll(mask[i]);
    }
    CHECK(count == CPU_COUNT(&all));
    while (!CPU_ISSET(cpu, &all)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    memset(mask, 0xff, sizeof(mask));
    tc_affinity_read(mask);
    for (int i = 0; i < TC_AFFINITY_CPUS; i++) {
        CHECK((mask[i / 64] >> (i % 64) & 1) == (i == cpu));
    }
    CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
}

/* CPUs that no rank before `rank` has taken; bits 0 to 9 and 1014 to 1023 are used. */
static bool
can_place(const uint64_t (*masks)[TC_AFFINITY_WORDS], int32_t ranks, int32_t rank,
          uint32_t taken)
{
    if (rank == ranks) {
        return true;
    }
    for (int i = 0; i < 10; i++) {
        int cpu = i < 5 ? i : 1014 + i;

        if ((masks[rank][cpu / 64] >> (cpu % 64) & 1) != 0 && (taken >> i & 1) == 0 &&
            can_place(masks, ranks, rank + 1, taken | 1u << i)) {
            return true;
        }
    }
    return false;
}

/* Against trying all placements, on random masks over few CPUs. */
static void
test_against_search(void)
{
    int fits = 0;

    srand(7);
    for (int round = 0; round < 20000; round++) {
        uint64_t masks[RANKS][TC_AFFINITY_WORDS] = {0};
        int32_t ranks = 1 + rand() % RANKS;
        int density = 1 + rand() % 6;
        bool expected;

        for (int32_t r = 0; r < ranks; r++) {
            for (int k = 0; k < density; k++) {
                int i = rand() % 10;
                int cpu = i < 5 ? i : 1014 + i;

                masks[r][cpu / 64] |= (uint64_t)(rand() % 4 != 0) << (cpu % 64);
            }
        }
        expected = can_place((const uint64_t (*)[TC_AFFINITY_WORDS])masks, ranks, 0, 0);
        fits += expected;
        CHECK(tc_affinity_oversubscribed((const uint64_t (*)[TC_AFFINITY_WORDS])masks,
                                         ranks) == !expected);
    }
    CHECK(fits > 1000 && fits < 19000);
}

static void
test_many(void)
{
    static uint64_t masks[TC_AFFINITY_CPUS + 1][TC_AFFINITY_WORDS];
    const uint64_t (*view)[TC_AFFINITY_WORDS] =
        (const uint64_t (*)[TC_AFFINITY_WORDS])masks;

    memset(masks, 0xff, sizeof(masks));
    CHECK(!tc_affinity_oversubscribed(view, TC_AFFINITY_CPUS));
    CHECK(tc_affinity_oversubscribed(view, TC_AFFINITY_CPUS + 1));
    /* rank r may use CPU r - 1 and r, rank 0 only CPU 0: one way, found from the end */
    memset(masks, 0, sizeof(masks));
    for (int r = 0; r < TC_AFFINITY_CPUS; r++) {
        int rank = TC_AFFINITY_CPUS - 1 - r;
        int below = r > 0 ? r - 1 : 0;

        masks[rank][r / 64] |= UINT64_C(1) << (r % 64);
        masks[rank][below / 64] |= UINT64_C(1) << (below % 64);
    }
    CHECK(!tc_affinity_oversubscribed(view, TC_AFFINITY_CPUS));
    memcpy(masks[7], masks[TC_AFFINITY_CPUS - 1], sizeof(masks[7]));
    CHECK(tc_affinity_oversubscribed(view, TC_AFFINITY_CPUS));
}

int
main(void)
{
    test_read();
    test_against_search();
    test_many();
    return 0;
}
