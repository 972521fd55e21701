/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane: a ring of slots in the segment, one writer, one or all readers. */
#ifndef TC_SHM_LANE_H
#define TC_SHM_LANE_H

#include "transport/shm/segment.h"

/* What travels with a piece, in one line. `number` counts the lane's pieces from 1 and
 * is written last. */
typedef struct tc_shm_piece {
    uint64_t number;
    uint64_t fingerprint; /* of the call it belongs to */
    uint64_t total; /* bytes of the whole transfer */
    uint32_t bytes; /* of this piece */
    uint32_t type; /* the user's of the lane */
    int32_t tag;
    uint32_t dtype;
    uint64_t message; /* point-to-point: number of the message of its pair */
    uint64_t pad[2];
} tc_shm_piece;

/* One process's end of a lane, for writing or for reading.
 *
 * Invariant: slot k % slots is written with piece k only when every reader has
 * acknowledged piece k - slots; a reader acknowledges a piece when it will not look at
 * it again. `next` is the number of the piece this end deals with next. */
typedef struct tc_shm_lane {
    tc_shm_piece *pieces;
    uint8_t *acks; /* one line per reader, a counter each */
    uint8_t *data;
    tc_shm_segment *segment;
    uint64_t next;
    uint64_t acked; /* writer: every reader is known to be this far */
    uint32_t populated; /* writer: bytes of each slot that are present */
    uint32_t slots;
    uint32_t slot_bytes;
    uint32_t readers;
    int32_t peer; /* the other end, -1: all other ranks */
    uint32_t index; /* reader: its acknowledgement line */
} tc_shm_lane;

/* The own rank's writing end of its lane to `peer` (-1 for the multicast lane). */
void
tc_shm_lane_open_writer(tc_shm_segment *segment, tc_shm_lane_kind kind, int32_t peer,
                        tc_shm_lane *lane_p);

/* The own rank's reading end of the lane from `peer`. */
void
tc_shm_lane_open_reader(tc_shm_segment *segment, tc_shm_lane_kind kind, int32_t peer,
                        tc_shm_lane *lane_p);

/* Writer, before the first piece of so many bytes: makes the memory present. */
tc_status
tc_shm_lane_prepare(tc_shm_lane *lane, tc_shm_segment *segment, uint32_t bytes,
                    tc_error *err);

/* Writer: the data of the next slot, or NULL while its previous piece is still read. */
uint8_t *
tc_shm_lane_reserve(tc_shm_lane *lane);

/* Writer: the rank whose reading holds up a full lane. */
int32_t
tc_shm_lane_slowest(const tc_shm_lane *lane);

/* Writer: hands over the reserved slot; all fields but `number` are the caller's. */
void
tc_shm_lane_publish(tc_shm_lane *lane, const tc_shm_piece *piece);

/* Reader: the next piece's header and data, or NULL while there is none. `bytes` of the
 * header may still be anything up to 2^32: compare before use. */
const tc_shm_piece *
tc_shm_lane_peek(const tc_shm_lane *lane, const uint8_t **data_p);

/* Reader: done with the piece that peek returned. */
void
tc_shm_lane_release(tc_shm_lane *lane);

/* Both ends of a lane with one reader: its TC_SHM_GRANTS answers. Answer k is at
 * k % TC_SHM_GRANTS. */
static inline tc_shm_grant *
tc_shm_lane_grants(const tc_shm_lane *lane)
{
    return (tc_shm_grant *)(void *)(lane->acks + (size_t)lane->readers * TC_SHM_LINE);
}

/* Rings the bell of every other rank, or of one. After a sequentially consistent store.
 */
void
tc_shm_ring_all(const tc_shm_segment *segment);

void
tc_shm_ring_one(const tc_shm_segment *segment, int32_t rank);

#endif
