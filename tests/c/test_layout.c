/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout of the segment: parts are apart, aligned, inside, and within the budget.
 */
#include "support/check.h"
#include "transport/shm/layout.h"

static void
check_parts(int32_t size)
{
    tc_shm_layout l;
    uint64_t ranks = (uint64_t)size;
    uint64_t end = sizeof(tc_shm_state);

    tc_shm_layout_compute(size, &l);
    CHECK(l.size == size && l.state_offset == 0);
    CHECK(l.rank_offset >= end && l.rank_offset % TC_SHM_PAGE == 0);
    CHECK(l.rank_stride >= sizeof(tc_shm_rank) && l.rank_stride % TC_SHM_PAGE == 0);
    end = l.rank_offset + ranks * l.rank_stride;
    CHECK(l.exchange_offset >= end && l.exchange_offset % TC_SHM_PAGE == 0);
    CHECK(l.exchange_stride >= 2 * (uint64_t)l.exchange_bytes);
    CHECK(l.exchange_bytes % TC_SHM_LINE == 0 && l.exchange_bytes >= 512);
    end = l.exchange_offset + ranks * l.exchange_stride;
    for (int32_t step = 0; step < TC_SHM_LANE_KINDS; step++) {
        /* in the order of their offsets */
        static const tc_shm_lane_kind order[] = {TC_SHM_LANE_MCAST, TC_SHM_LANE_PAIR,
                                                 TC_SHM_LANE_EAGER, TC_SHM_LANE_BULK};
        const tc_shm_lane_shape *shape = &l.lanes[order[step]];
        uint64_t count = order[step] == TC_SHM_LANE_MCAST ? ranks : ranks * ranks;

        CHECK(shape->offset >= end && shape->offset % TC_SHM_PAGE == 0);
        CHECK(shape->slots >= 1 && shape->slots <= TC_SHM_MAX_SLOTS);
        CHECK(shape->control_bytes >=
              (shape->slots + (uint64_t)shape->readers) * TC_SHM_LINE);
        CHECK(shape->stride >=
              shape->control_bytes + (uint64_t)shape->slots * shape->slot_bytes);
        CHECK(shape->stride % TC_SHM_PAGE == 0);
        CHECK(tc_shm_layout_lane(&l, order[step], size - 1, size - 1) + shape->stride ==
              shape->offset + count * shape->stride);
        end = shape->offset + count * shape->stride;
    }
    CHECK(l.bytes == end);
    /* 47 bits of address space, shared with everything else */
    CHECK(l.bytes < UINT64_C(1) << 43);
}

static void
test_lanes_are_apart(void)
{
    tc_shm_layout l;
    uint64_t next;

    tc_shm_layout_compute(5, &l);
    next = l.lanes[TC_SHM_LANE_PAIR].offset;
    for (int32_t from = 0; from < 5; from++) {
        for (int32_t to = 0; to < 5; to++) {
            CHECK(tc_shm_layout_lane(&l, TC_SHM_LANE_PAIR, from, to) == next);
            next += l.lanes[TC_SHM_LANE_PAIR].stride;
        }
    }
    CHECK(next == l.lanes[TC_SHM_LANE_EAGER].offset);
    CHECK(tc_shm_layout_lane(&l, TC_SHM_LANE_MCAST, 3, 0) ==
          tc_shm_layout_lane(&l, TC_SHM_LANE_MCAST, 3, 4));
}

int
main(void)
{
    for (int32_t size = 1; size <= TC_SHM_MAX_RANKS; size++) {
        check_parts(size);
    }
    test_lanes_are_apart();
    return 0;
}
