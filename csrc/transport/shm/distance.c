/* SPDX-License-Identifier: BSD-3-Clause */
/* Times words of other ranks to tell near from far. */
#include "transport/shm/distance.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/clock.h"

/* Of every so many news the beat is timed. */
#define NEWS 16u
/* This many samples more of one kind make the answer; from one to the other it takes
 * twice as many. */
#define VOTES 4
/* A line of a core on the same L3 is there in about 30 ns, one from another L3 takes
 * 110 ns and more. */
#define FAR_NS 65u

/* Whether stores around the caches can be the faster ones. */
static bool
matters(void)
{
#if defined(__x86_64__) && !defined(TC_MODEL)
    enum { LEAF = 7, ERMS_BIT = 9 };
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;

    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) == 0 || (b >> ERMS_BIT & 1u) == 0;
#else
    return false;
#endif
}

/* What two readings of the clock cost by themselves. */
static uint64_t
clock_cost_ns(void)
{
    enum { READINGS = 32 };
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < READINGS; i++) {
        uint64_t start = tc_clock_ns();
        uint64_t ns = tc_clock_ns() - start;

        least = ns < least ? ns : least;
    }
    return least;
}

void
tc_shm_distance_init(tc_shm_distance *distance)
{
    *distance = (tc_shm_distance){.matters = matters(), .wait = NEWS};
    distance->far_ns = (uint32_t)clock_cost_ns() + FAR_NS;
}

void
tc_shm_distance_add(tc_shm_distance *distance, uint64_t ns)
{
    if (ns > distance->far_ns) {
        distance->votes += distance->votes < VOTES;
    } else {
        distance->votes -= distance->votes > -VOTES;
    }
    if (distance->votes == VOTES || distance->votes == -VOTES) {
        distance->far = distance->votes > 0;
    }
}

void
tc_shm_distance_sample(tc_shm_distance *distance, const uint64_t *beat)
{
    uint64_t start;
    uint64_t count;
    uint64_t ns;

    if (!distance->matters) {
        distance->wait = UINT32_MAX;
        return;
    }
    start = tc_clock_ns();
    count = tc_load_acquire_u64(beat);
    ns = tc_clock_ns() - start;
    if (beat != distance->beat || count != distance->count) {
        tc_shm_distance_add(distance, ns);
        distance->beat = beat;
        distance->count = count;
    }
    distance->wait = NEWS;
}
