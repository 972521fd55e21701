/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared segment of a communicator on one host: made by its leader, handed to its
 * members over a unix socket, never named in a file system. */
#ifndef TC_SHM_SEGMENT_H
#define TC_SHM_SEGMENT_H

#include "base/copy.h"
#include "loop/page.h"
#include "torchcomms/backend.h"
#include "transport/shm/distance.h"
#include "transport/shm/layout.h"

/* A mapped segment. Invariant: everything a peer wrote is checked before it is used as
 * an index or a size. `pages[r]` is rank r's process page, the own one for the own
 * rank. */
typedef struct tc_shm_segment {
    tc_shm_layout layout;
    tc_shm_distance distance; /* of the threads that have the communicator */
    int32_t rank;
    uint8_t *base;
    tc_page **pages;
    int32_t pid; /* who mapped it: a forked child does not have the mapping */
    int fd; /* -1, except where only fallocate can populate (before Linux 5.14) */
} tc_shm_segment;

/* The members of one reconfigure, where each has a listener of its own that outlives
 * the start-up. */
typedef struct tc_shm_group {
    uint64_t generation; /* no other group of these members has it */
    uint64_t digest; /* of the addresses in their order */
    const char *const *addresses; /* by rank */
} tc_shm_group;

/* Who takes part, and from where. */
typedef struct tc_shm_member {
    int32_t rank;
    int32_t size;
    tc_page *page; /* own process page, borrowed for the life of the segment */
    int page_fd;
    const char *name; /* of the communicator, for errors */
    uint64_t deadline_ns;
    bool (*interrupted)(void *ctx); /* asked every 25 ms or so; may be NULL */
    void *interrupted_ctx;
    const tc_shm_group *group; /* NULL: a start-up that nobody joins twice */
} tc_shm_member;

typedef struct tc_shm_leader tc_shm_leader;

enum { TC_SHM_ADDRESS_BYTES = 192 };

/* Rank 0 opens a listener and tells its address (zero-terminated text: socket name,
 * boot id, host id, a random token) to the members by whatever means there is. */
tc_status
tc_shm_leader_open(tc_shm_leader **leader_p, char address_p[TC_SHM_ADDRESS_BYTES],
                   tc_error *err);

void
tc_shm_leader_close(tc_shm_leader *leader);

/* Whether a text is an address, of whatever host. */
tc_status
tc_shm_address_check(const char *address, tc_error *err);

/* Rank 0: waits for all members, makes the segment, hands it out, waits until all have
 * mapped and populated their part. Of a group, it refuses who comes for another
 * generation, notices who will not come because its listener is gone, and may serve
 * again. What fails on one rank fails on all, with the rank
 * and the cause; ranks that did not come are named at the deadline. A communicator of
 * size 1 needs no leader: NULL will do. */
tc_status
tc_shm_leader_serve(tc_shm_leader *leader, const tc_shm_member *self,
                    tc_shm_segment **segment_p, tc_error *err);

/* The other ranks. An address of another host is refused with both hosts. */
tc_status
tc_shm_member_join(const char *address, const tc_shm_member *self,
                   tc_shm_segment **segment_p, tc_error *err);

/* Unmaps; in a forked child only frees. */
void
tc_shm_segment_close(tc_shm_segment *segment);

/* Makes `bytes` from `offset` present, so that touching them cannot fail. Out of memory
 * is TC_ERR_NO_MEMORY, never a signal. */
tc_status
tc_shm_segment_populate(tc_shm_segment *segment, uint64_t offset, uint64_t bytes,
                        tc_error *err);

static inline tc_shm_state *
tc_shm_segment_state(const tc_shm_segment *segment)
{
    return (tc_shm_state *)(void *)(segment->base + segment->layout.state_offset);
}

static inline tc_shm_rank *
tc_shm_segment_rank(const tc_shm_segment *segment, int32_t rank)
{
    return (tc_shm_rank *)(void *)(segment->base + segment->layout.rank_offset +
                                   segment->layout.rank_stride * (uint64_t)rank);
}

/* The slot of `rank` for exchanges of this parity. */
static inline uint8_t *
tc_shm_segment_exchange(const tc_shm_segment *segment, int32_t rank, uint64_t parity)
{
    return segment->base + segment->layout.exchange_offset +
           segment->layout.exchange_stride * (uint64_t)rank +
           segment->layout.exchange_bytes * parity;
}

/* When this rank has given others news, and when it has got some from `rank`: this
 * keeps `distance` up to date. */
static inline void
tc_shm_segment_beat(const tc_shm_segment *segment)
{
    tc_shm_distance_beat(&segment->distance,
                         &tc_shm_segment_rank(segment, segment->rank)->beat);
}

static inline void
tc_shm_segment_hear(tc_shm_segment *segment, int32_t rank)
{
    tc_shm_distance_hear(&segment->distance, &tc_shm_segment_rank(segment, rank)->beat);
}

/* Copies into a slot that this rank owns. */
static inline void
tc_shm_segment_fill(const tc_shm_segment *segment, void *slot, const void *src,
                    size_t bytes)
{
    tc_copy_to_slot(slot, src, bytes, segment->distance.far);
}

#endif
