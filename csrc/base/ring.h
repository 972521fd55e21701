/* SPDX-License-Identifier: BSD-3-Clause */
/* The record of the last operations: a ring that its owner writes and anyone may read.
 */
#ifndef TC_BASE_RING_H
#define TC_BASE_RING_H

#include "base/atomic.h"
#include "torchcomms/types.h"

#define TC_RING_ENTRIES 1024u

typedef enum tc_ring_state {
    TC_RING_ISSUED = 1,
    TC_RING_COMPLETED = 2,
    TC_RING_FAILED = 3,
} tc_ring_state;

/* One line. Invariant: `number` is written last and is the entry's own (counted from
 * 1), 0 while the entry is being rewritten; a reader copies, then checks that it still
 * stands there. */
typedef struct tc_ring_entry {
    uint64_t number;
    uint64_t start_tick; /* tc_ring_tick() */
    uint64_t end_tick; /* 0: not ended */
    uint64_t count;
    uint64_t seq;
    uint32_t comm; /* number of the communicator in its process */
    uint8_t kind; /* tc_op_kind */
    uint8_t dtype;
    uint8_t redop;
    uint8_t state; /* tc_ring_state */
    int32_t root;
    uint32_t step; /* index of the plan step it stands in, + 1; 0: none */
    uint64_t pad;
} tc_ring_entry;

/* Several threads of the owner may begin entries; each entry is ended by one. */
typedef struct tc_ring {
    uint64_t next; /* entries begun so far */
    uint64_t pad[7];
    tc_ring_entry entries[TC_RING_ENTRIES];
} tc_ring;

/* The time stamp counter where there is one, else nanoseconds: fast, not comparable
 * between hosts. */
static inline uint64_t
tc_ring_tick(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t v;

    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(v));
    return v;
#else
    return 0;
#endif
}

/* Begins an entry and returns it; the caller fills the fields and then calls
 * tc_ring_publish. */
static inline tc_ring_entry *
tc_ring_begin(tc_ring *ring, uint64_t *number_p)
{
    uint64_t number = tc_fetch_add_relaxed_u64(&ring->next, 1) + 1;
    tc_ring_entry *entry = &ring->entries[number % TC_RING_ENTRIES];

    tc_store_relaxed_u64(&entry->number, 0);
    entry->start_tick = tc_ring_tick();
    *number_p = number;
    return entry;
}

static inline void
tc_ring_publish(tc_ring_entry *entry, uint64_t number)
{
    tc_store_release_u64(&entry->number, number);
}

/* Ends entry `number`, unless the ring has come round to it since; `seq` is the number
 * that the operation got when its turn came. */
static inline void
tc_ring_end(tc_ring *ring, uint64_t number, uint64_t seq, tc_ring_state state)
{
    tc_ring_entry *entry = &ring->entries[number % TC_RING_ENTRIES];

    if (tc_load_relaxed_u64(&entry->number) == number) {
        entry->end_tick = tc_ring_tick();
        entry->seq = seq;
        entry->state = (uint8_t)state;
    }
}

#endif
