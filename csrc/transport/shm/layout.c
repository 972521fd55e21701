/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of the segment. */
#include "transport/shm/layout.h"

/* One exchange is worth it while bytes x (ranks - 1) stays under this (engine facts,
 * section 1). */
#define EXCHANGE_BUDGET (48u * 1024u)
#define EXCHANGE_LEAST 512u

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Slots of 64 KiB are best (engine facts, section 2); many ranks have many lanes, and
 * what each of them has to populate should stay near 16 MiB. */
static uint32_t
pair_slot_bytes(int32_t size)
{
    return size <= 4    ? 64u * 1024u
           : size <= 16 ? 32u * 1024u
           : size <= 64 ? 16u * 1024u
                        : 4u * 1024u;
}

static uint64_t
lay_lanes(tc_shm_lane_shape *shape, uint64_t offset, uint64_t count)
{
    shape->control_bytes = round_up(
        (uint64_t)(TC_SHM_MAX_SLOTS + shape->readers + TC_SHM_GRANTS) * TC_SHM_LINE,
        TC_SHM_PAGE);
    shape->stride = shape->control_bytes +
                    round_up((uint64_t)shape->slots * shape->slot_bytes, TC_SHM_PAGE);
    shape->offset = offset;
    return offset + shape->stride * count;
}

void
tc_shm_layout_compute(int32_t size, tc_shm_layout *layout_p)
{
    uint64_t ranks = (uint64_t)size;
    uint32_t others = size > 1 ? (uint32_t)size - 1 : 1;
    uint32_t pair = pair_slot_bytes(size);
    uint32_t exchange = EXCHANGE_BUDGET / others;
    tc_shm_layout l = {.size = size};
    uint64_t at = 0;

    l.exchange_bytes = (uint32_t)round_up(
        exchange > EXCHANGE_LEAST ? exchange : EXCHANGE_LEAST, TC_SHM_LINE);
    l.state_offset = at;
    at += TC_SHM_PAGE;
    l.rank_offset = at;
    l.rank_stride = round_up(sizeof(tc_shm_rank), TC_SHM_PAGE);
    at += l.rank_stride * ranks;
    l.exchange_offset = at;
    l.exchange_stride = round_up(2 * (uint64_t)l.exchange_bytes, TC_SHM_PAGE);
    at += l.exchange_stride * ranks;
    l.lanes[TC_SHM_LANE_MCAST] =
        (tc_shm_lane_shape){.slots = 4, .slot_bytes = 64u * 1024u, .readers = others};
    l.lanes[TC_SHM_LANE_PAIR] =
        (tc_shm_lane_shape){.slots = 4, .slot_bytes = pair, .readers = 1};
    l.lanes[TC_SHM_LANE_EAGER] =
        (tc_shm_lane_shape){.slots = 8, .slot_bytes = 16u * 1024u, .readers = 1};
    l.lanes[TC_SHM_LANE_BULK] =
        (tc_shm_lane_shape){.slots = 4, .slot_bytes = pair, .readers = 1};
    at = lay_lanes(&l.lanes[TC_SHM_LANE_MCAST], at, ranks);
    at = lay_lanes(&l.lanes[TC_SHM_LANE_PAIR], at, ranks * ranks);
    at = lay_lanes(&l.lanes[TC_SHM_LANE_EAGER], at, ranks * ranks);
    at = lay_lanes(&l.lanes[TC_SHM_LANE_BULK], at, ranks * ranks);
    l.bytes = at;
    *layout_p = l;
}

uint64_t
tc_shm_layout_lane(const tc_shm_layout *layout, tc_shm_lane_kind kind, int32_t from,
                   int32_t to)
{
    const tc_shm_lane_shape *shape = &layout->lanes[kind];
    uint64_t index = (uint64_t)from;

    if (kind != TC_SHM_LANE_MCAST) {
        index = index * (uint64_t)layout->size + (uint64_t)to;
    }
    return shape->offset + shape->stride * index;
}
