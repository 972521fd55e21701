/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of a lane. */
#include "transport/shm/lane.h"

#include "base/atomic.h"
#include "base/error.h"

_Static_assert(sizeof(tc_shm_piece) == TC_SHM_LINE, "a piece's header is one line");

static void
open_end(tc_shm_segment *segment, tc_shm_lane_kind kind, uint64_t offset,
         tc_shm_lane *lane_p)
{
    const tc_shm_lane_shape *shape = &segment->layout.lanes[kind];
    uint8_t *base = segment->base + offset;

    *lane_p = (tc_shm_lane){
        .pieces = (tc_shm_piece *)(void *)base,
        .acks = base + (size_t)TC_SHM_MAX_SLOTS * TC_SHM_LINE,
        .data = base + shape->control_bytes,
        .segment = segment,
        .next = 1,
        .slots = shape->slots,
        .slot_bytes = shape->slot_bytes,
        .readers = shape->readers,
    };
}

void
tc_shm_lane_open_writer(tc_shm_segment *segment, tc_shm_lane_kind kind, int32_t peer,
                        tc_shm_lane *lane_p)
{
    open_end(segment, kind,
             tc_shm_layout_lane(&segment->layout, kind, segment->rank, peer), lane_p);
    lane_p->peer = kind == TC_SHM_LANE_MCAST ? -1 : peer;
}

void
tc_shm_lane_open_reader(tc_shm_segment *segment, tc_shm_lane_kind kind, int32_t peer,
                        tc_shm_lane *lane_p)
{
    int32_t rank = segment->rank;

    open_end(segment, kind, tc_shm_layout_lane(&segment->layout, kind, peer, rank),
             lane_p);
    lane_p->peer = peer;
    if (kind == TC_SHM_LANE_MCAST) {
        /* The writer has no line: its readers close the gap. */
        lane_p->index = (uint32_t)(rank < peer ? rank : rank - 1);
    }
}

tc_status
tc_shm_lane_prepare(tc_shm_lane *lane, tc_shm_segment *segment, uint32_t bytes,
                    tc_error *err)
{
    uint64_t control = (uint64_t)((uint8_t *)lane->pieces - segment->base);
    uint64_t data = (uint64_t)(lane->data - segment->base);

    if (bytes == 0) {
        bytes = 1;
    }
    if (lane->populated >= bytes) {
        return TC_OK;
    }
    if (lane->populated == 0) {
        TC_TRY(tc_shm_segment_populate(segment, control, data - control, err));
    }
    for (uint32_t i = 0; i < lane->slots; i++) {
        uint64_t slot = data + (uint64_t)i * lane->slot_bytes;

        TC_TRY(tc_shm_segment_populate(segment, slot, bytes, err));
    }
    lane->populated = bytes;
    return TC_OK;
}

/* The counter of reader `i`: pieces it will not look at again. */
static uint64_t *
ack_of(const tc_shm_lane *lane, uint32_t i)
{
    return (uint64_t *)(void *)(lane->acks + (size_t)i * TC_SHM_LINE);
}

static uint64_t
lowest_ack(const tc_shm_lane *lane)
{
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < lane->readers; i++) {
        uint64_t ack = tc_load_acquire_u64(ack_of(lane, i));

        lowest = ack < lowest ? ack : lowest;
    }
    return lowest;
}

uint8_t *
tc_shm_lane_reserve(tc_shm_lane *lane)
{
    if (lane->next > lane->acked + lane->slots) {
        lane->acked = lowest_ack(lane);
        if (lane->next > lane->acked + lane->slots) {
            return NULL;
        }
        tc_shm_segment_hear(lane->segment, tc_shm_lane_slowest(lane));
    }
    return lane->data + (lane->next % lane->slots) * lane->slot_bytes;
}

int32_t
tc_shm_lane_slowest(const tc_shm_lane *lane)
{
    uint32_t slowest = 0;

    if (lane->peer >= 0) {
        return lane->peer;
    }
    for (uint32_t i = 1; i < lane->readers; i++) {
        if (tc_load_acquire_u64(ack_of(lane, i)) <
            tc_load_acquire_u64(ack_of(lane, slowest))) {
            slowest = i;
        }
    }
    return (int32_t)slowest < lane->segment->rank ? (int32_t)slowest
                                                  : (int32_t)slowest + 1;
}

void
tc_shm_lane_publish(tc_shm_lane *lane, const tc_shm_piece *piece)
{
    tc_shm_piece *slot = &lane->pieces[lane->next % lane->slots];

    slot->fingerprint = piece->fingerprint;
    slot->total = piece->total;
    slot->bytes = piece->bytes;
    slot->type = piece->type;
    slot->tag = piece->tag;
    slot->dtype = piece->dtype;
    slot->message = piece->message;
    tc_store_seq_cst_u64(&slot->number, lane->next);
    lane->next++;
    if (lane->peer >= 0) {
        tc_shm_ring_one(lane->segment, lane->peer);
    } else {
        tc_shm_ring_all(lane->segment);
    }
}

const tc_shm_piece *
tc_shm_lane_peek(const tc_shm_lane *lane, const uint8_t **data_p)
{
    const tc_shm_piece *slot = &lane->pieces[lane->next % lane->slots];

    if (tc_load_acquire_u64(&slot->number) != lane->next) {
        return NULL;
    }
    tc_shm_segment_hear(lane->segment, lane->peer);
    *data_p = lane->data + (lane->next % lane->slots) * lane->slot_bytes;
    return slot;
}

void
tc_shm_lane_release(tc_shm_lane *lane)
{
    tc_store_seq_cst_u64(ack_of(lane, lane->index), lane->next);
    lane->next++;
    tc_shm_ring_one(lane->segment, lane->peer);
}

void
tc_shm_ring_one(const tc_shm_segment *segment, int32_t rank)
{
    tc_shm_segment_beat(segment);
    tc_bell_ring(&segment->pages[rank]->bell);
}

void
tc_shm_ring_all(const tc_shm_segment *segment)
{
    tc_shm_segment_beat(segment);
    for (int32_t r = 0; r < segment->layout.size; r++) {
        if (r != segment->rank) {
            tc_bell_ring(&segment->pages[r]->bell);
        }
    }
}
