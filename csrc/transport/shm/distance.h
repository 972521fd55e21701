/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the readers of this rank's slots run near or far, as it matters for writing.
 *
 * Where a CPU has no "enhanced rep movsb", a store to a line that a core on another L3
 * has read takes twice as long as a store around the caches, and on the same L3 it is
 * the reverse (docs/design/copies.md). A hypervisor neither tells which it is nor
 * leaves it so: it is measured in passing.
 *
 * Each rank has a word, its beat, that it counts up whenever it gives the others news.
 * Now and then one of them, having heard the news, times how long the beat takes to
 * come. It stands alone, or else a prefetch may have brought it before. */
#ifndef TC_SHM_DISTANCE_H
#define TC_SHM_DISTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

/* Belongs to the thread that has the segment. */
typedef struct tc_shm_distance {
    bool matters; /* on this CPU */
    bool far; /* the answer */
    int8_t votes; /* of the last samples: far ones count up, near ones down */
    uint32_t far_ns; /* a beat that takes longer comes from afar */
    uint32_t wait; /* news until the next sample */
    const uint64_t *beat; /* the last sample */
    uint64_t count;
} tc_shm_distance;

void
tc_shm_distance_init(tc_shm_distance *distance);

/* Takes one measured time into account. */
void
tc_shm_distance_add(tc_shm_distance *distance, uint64_t ns);

/* Times the beat of a rank that has just given news. */
void
tc_shm_distance_sample(tc_shm_distance *distance, const uint64_t *beat);

/* There is news from the rank with this beat. */
static inline void
tc_shm_distance_hear(tc_shm_distance *distance, const uint64_t *beat)
{
    if (--distance->wait == 0) {
        tc_shm_distance_sample(distance, beat);
    }
}

/* This rank has given news; `beat` is its own. Not before, or the news would wait for
 * the line where another rank has just sampled it. */
static inline void
tc_shm_distance_beat(const tc_shm_distance *distance, uint64_t *beat)
{
    if (distance->matters) {
        tc_store_relaxed_u64(beat, tc_load_relaxed_u64(beat) + 1);
    }
}

#endif
