/* SPDX-License-Identifier: BSD-3-Clause */
/* The last generations that a leader has served or tried, to tell who is late from who
 * is early. */
#ifndef TC_SHM_PAST_H
#define TC_SHM_PAST_H

#include <stdbool.h>
#include <stdint.h>

enum { TC_SHM_PAST = 64 };

typedef struct tc_shm_past {
    uint64_t ring[TC_SHM_PAST];
    uint64_t count;
} tc_shm_past;

static inline void
tc_shm_past_add(tc_shm_past *past, uint64_t generation)
{
    past->ring[past->count++ % TC_SHM_PAST] = generation;
}

static inline bool
tc_shm_past_has(const tc_shm_past *past, uint64_t generation)
{
    uint64_t kept = past->count < TC_SHM_PAST ? past->count : TC_SHM_PAST;

    for (uint64_t i = 0; i < kept; i++) {
        if (past->ring[i] == generation) {
            return true;
        }
    }
    return false;
}

#endif
