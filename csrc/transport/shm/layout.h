/* SPDX-License-Identifier: BSD-3-Clause */
/* Where everything lies in the segment that the ranks of one host share. */
#ifndef TC_SHM_LAYOUT_H
#define TC_SHM_LAYOUT_H

#include "torchcomms/types.h"

enum {
    TC_SHM_LINE = 64,
    TC_SHM_APART = 512, /* from which nothing is fetched along with a line */
    TC_SHM_PAGE = 4096,
    TC_SHM_MAX_RANKS = 4096,
    TC_SHM_INLINE_BYTES = 48,
    TC_SHM_CALLS = 32, /* announced calls per rank */
    TC_SHM_MAX_SLOTS = 8, /* of a lane */
    TC_SHM_GRANTS = 16, /* of a lane */
};

/* One exchange: a header that travels with its data, or with a pointer to the slot.
 *
 * Invariant (parity double buffering): exchange x writes header and slot x % 2. Its
 * previous content, exchange x - 2, has been read by all: every rank has published x -
 * 1, which it does only after it has finished x - 2, and this rank has seen that before
 * it finished x - 1. */
typedef struct tc_shm_header {
    uint64_t seq; /* exchange number, written last */
    uint64_t fingerprint;
    uint8_t data[TC_SHM_INLINE_BYTES];
} tc_shm_header;

/* A call as its rank announced it, for the slow path of ranks that wait: what does the
 * other do instead? Invariant: `seq` is 0 while the entry is rewritten.
 *
 * From `in_region` on only calls use it whose ranks may read each other's buffers:
 * where input and output lie in the rank's heap (tc_heap_place), and later, in
 * `verdict`, twice `seq`, plus 1 if it can read those of all others. */
typedef struct tc_shm_call {
    uint64_t seq; /* collective number, counted from 1 */
    uint64_t fingerprint;
    uint64_t count;
    uint8_t kind;
    uint8_t dtype;
    uint8_t redop;
    uint8_t unused;
    int32_t root;
    uint32_t in_region;
    uint32_t out_region;
    uint64_t in_offset;
    uint64_t out_offset;
    uint64_t verdict;
} tc_shm_call;

typedef enum tc_shm_lane_kind {
    TC_SHM_LANE_PAIR, /* collectives, from one rank to one other */
    TC_SHM_LANE_MCAST, /* collectives, from one rank to all others */
    TC_SHM_LANE_EAGER, /* point-to-point: envelopes and small messages */
    TC_SHM_LANE_BULK, /* point-to-point: data of matched large messages */
    TC_SHM_LANE_KINDS
} tc_shm_lane_kind;

/* What the reader of a lane answers its writer: point-to-point, how an offer of a large
 * message ended. Invariant: `number` counts the answers from 1 and is written last;
 * answer k is written when the writer has read answer k - TC_SHM_GRANTS. */
typedef struct tc_shm_grant {
    uint64_t number;
    uint64_t message; /* number of the message of its pair */
    uint64_t total; /* bytes that the reader wants */
    uint32_t dtype;
    uint32_t verdict; /* the user's of the lane */
    uint64_t pad[4];
} tc_shm_grant;

/* Shape of the lanes of one kind. A lane is its control pages (headers of the slots,
 * one acknowledgement line per reader, then the answers), then its slots. */
typedef struct tc_shm_lane_shape {
    uint32_t slots;
    uint32_t slot_bytes;
    uint32_t readers;
    uint64_t control_bytes;
    uint64_t stride; /* from one lane to the next */
    uint64_t offset; /* of the first lane of this kind */
} tc_shm_lane_shape;

/* A pure function of the number of ranks. Nothing but the control part is populated
 * before it is used, and the file is sparse, so the size of the pair lanes (which grows
 * with the square of the ranks) costs address space only. */
typedef struct tc_shm_layout {
    int32_t size;
    uint32_t exchange_bytes; /* capacity of one exchange slot */
    uint64_t state_offset; /* the state word and text of a broken communicator */
    uint64_t rank_offset; /* first rank's control part: headers, calls, flags */
    uint64_t rank_stride;
    uint64_t exchange_offset; /* first rank's two exchange slots */
    uint64_t exchange_stride;
    tc_shm_lane_shape lanes[TC_SHM_LANE_KINDS];
    uint64_t bytes; /* of the whole segment */
} tc_shm_layout;

/* What broke a communicator: first writer wins. Invariant: `state` goes 0, 1 (being
 * written), 2 (readable) and never back. */
typedef struct tc_shm_state {
    uint32_t state;
    int32_t status; /* tc_status */
    int32_t rank; /* who found it */
    int32_t culprit; /* -1: nobody in particular */
    char message[TC_SHM_PAGE - 16];
} tc_shm_state;

/* A rank's control part. */
typedef struct tc_shm_rank {
    tc_shm_header headers[2];
    tc_shm_call calls[TC_SHM_CALLS];
    uint32_t finalized; /* set when the rank leaves, read on slow paths */
    uint32_t unused;
    uint64_t pad[7];
    uint64_t affinity[16]; /* CPUs its threads may run on, 1024 bits */
    /* bit r % 64 of word r / 64: rank r has made its point-to-point lane to this rank
     * present, so that reading there cannot fail; set by r, never cleared */
    uint64_t senders[TC_SHM_MAX_RANKS / 64];
    /* counts up with the rank's news (tc_shm_distance), far from other lines */
    _Alignas(TC_SHM_APART) uint64_t beat;
} tc_shm_rank;

/* `size` is 1 to TC_SHM_MAX_RANKS. */
void
tc_shm_layout_compute(int32_t size, tc_shm_layout *layout_p);

/* Offset of the lane of `kind` from rank `from` to rank `to` (`to` is ignored for
 * multicast lanes). */
uint64_t
tc_shm_layout_lane(const tc_shm_layout *layout, tc_shm_lane_kind kind, int32_t from,
                   int32_t to);

#endif
