/* SPDX-License-Identifier: BSD-3-Clause */
/* Affinity masks, and a matching of ranks to CPUs. */
#include "base/affinity.h"

#include <sched.h>
#include <string.h>

_Static_assert(TC_AFFINITY_CPUS == CPU_SETSIZE, "a mask holds a cpu_set_t");

void
tc_affinity_read(uint64_t mask_p[TC_AFFINITY_WORDS])
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        /* more CPUs than fit: nothing is known, so nothing is claimed */
        memset(mask_p, 0xff, TC_AFFINITY_WORDS * sizeof(uint64_t));
        return;
    }
    memset(mask_p, 0, TC_AFFINITY_WORDS * sizeof(uint64_t));
    for (int cpu = 0; cpu < TC_AFFINITY_CPUS; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            mask_p[cpu / 64] |= UINT64_C(1) << (cpu % 64);
        }
    }
}

static int32_t
count_cpus(const uint64_t *mask)
{
    int32_t count = 0;

    for (int i = 0; i < TC_AFFINITY_WORDS; i++) {
        count += __builtin_popcountll(mask[i]);
    }
    return count;
}

/* A matching as it grows: `owner[c]` is the rank that has CPU c, -1 for none. */
typedef struct matching {
    int32_t owner[TC_AFFINITY_CPUS];
    int32_t asked_by[TC_AFFINITY_CPUS]; /* of the search that runs */
    int32_t cpu_of[TC_AFFINITY_CPUS]; /* by rank; -1: none yet */
} matching;

/* Gives `cpu` to the rank that asked for it, that rank's former CPU to who asked for
 * that, and so on up to the rank that began the search. */
static void
pass_on(matching *m, int32_t cpu)
{
    while (cpu >= 0) {
        int32_t rank = m->asked_by[cpu];
        int32_t former = m->cpu_of[rank];

        m->owner[cpu] = rank;
        m->cpu_of[rank] = cpu;
        cpu = former;
    }
}

/* Breadth first along "this CPU's owner could move": each CPU is looked at once. */
static bool
find_cpu(matching *m, const uint64_t (*masks)[TC_AFFINITY_WORDS], int32_t rank)
{
    uint64_t seen[TC_AFFINITY_WORDS] = {0};
    int32_t queue[TC_AFFINITY_CPUS + 1] = {rank};
    int32_t length = 1;

    for (int32_t head = 0; head < length; head++) {
        for (int word = 0; word < TC_AFFINITY_WORDS; word++) {
            uint64_t fresh = masks[queue[head]][word] & ~seen[word];

            seen[word] |= fresh;
            for (; fresh != 0; fresh &= fresh - 1) {
                int32_t cpu = word * 64 + __builtin_ctzll(fresh);

                m->asked_by[cpu] = queue[head];
                if (m->owner[cpu] < 0) {
                    pass_on(m, cpu);
                    return true;
                }
                queue[length++] = m->owner[cpu];
            }
        }
    }
    return false;
}

bool
tc_affinity_oversubscribed(const uint64_t (*masks)[TC_AFFINITY_WORDS], int32_t ranks)
{
    uint64_t all[TC_AFFINITY_WORDS] = {0};
    int32_t fewest = TC_AFFINITY_CPUS;
    matching m;

    if (ranks > TC_AFFINITY_CPUS) {
        return true;
    }
    for (int32_t r = 0; r < ranks; r++) {
        int32_t count = count_cpus(masks[r]);

        fewest = count < fewest ? count : fewest;
        for (int i = 0; i < TC_AFFINITY_WORDS; i++) {
            all[i] |= masks[r][i];
        }
    }
    if (count_cpus(all) < ranks) {
        return true;
    }
    if (fewest >= ranks) {
        return false;
    }
    memset(&m, 0xff, sizeof(m)); /* -1 everywhere */
    for (int32_t r = 0; r < ranks; r++) {
        if (!find_cpu(&m, masks, r)) {
            return true;
        }
    }
    return false;
}
