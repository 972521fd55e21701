/* SPDX-License-Identifier: BSD-3-Clause */
/* all_reduce, all_gather_single and reduce_scatter_single of buffers that every rank
 * can read: nothing goes through a slot.
 *
 * Source: single-copy collectives of shared-memory MPIs (KNEM, XPMEM: Goglin and
 * Moreaud, JPDC 2013) with the split of work of the plans with lanes.
 *
 * All ranks have made the call when a plan starts, so every input is ready. Rank r:
 *
 *   all_reduce           REDUCE_READ  chunk r of in of all ranks, into chunk r of out
 *                        MCAST        nothing, when that is done
 *                        MRECV        nothing from p, then
 *                        READ         chunk p of out of p, for every other p
 *   all_gather_single    COPY         in to block r of out_blocks
 *                        READ         in of p to block p, for every other p
 *   reduce_scatter       REDUCE_READ  block r of in_blocks of all ranks, into out
 *     _single
 *   all                  MCAST        nothing, when all of that is done
 *                        MRECV        nothing from p, for every other p
 *
 * The last messages let a rank's user write to its buffers again: they have been read.
 *
 * Bytes read are those of the plans with lanes, and none are written but the results.
 *
 * In place is right: chunk or block r of the own input is read by rank r alone, and
 * chunk p of out is written when p has reduced, hence has read this rank's chunk p. */
#include "coll/plan_build.h"

static const tc_place nowhere = {.space = TC_SPACE_NONE};

static void
let_go(const tc_plan_shape *shape, tc_plan *plan)
{
    if (shape->size == 1) {
        return;
    }
    tc_plan_add_mcast(plan, nowhere, 0, TC_AFTER_ALL);
    for (int32_t i = 1; i < shape->size; i++) {
        tc_plan_add_mrecv(plan, tc_plan_peer_below(shape, i), nowhere, 0);
    }
}

static void
chunk(const tc_plan_shape *shape, int32_t r, tc_place *in_p, tc_place *out_p,
      uint64_t *bytes_p)
{
    uint64_t offset;

    tc_plan_share(shape->count, shape->size, r, &offset, bytes_p);
    *in_p = tc_place_in(offset * shape->elem_bytes);
    *out_p = tc_place_out(offset * shape->elem_bytes);
    *bytes_p *= shape->elem_bytes;
}

void
tc_plan_all_reduce_direct(const tc_plan_shape *shape, tc_plan *plan)
{
    tc_place in, out;
    uint64_t bytes;

    chunk(shape, shape->rank, &in, &out, &bytes);
    tc_plan_add_reduce_read(plan, in, out, bytes);
    if (shape->size > 1) {
        tc_plan_add_mcast(plan, nowhere, 0, TC_AFTER_ALL);
    }
    for (int32_t i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_below(shape, i);
        int32_t reduced = tc_plan_add_mrecv(plan, peer, nowhere, 0);

        chunk(shape, peer, &in, &out, &bytes);
        tc_plan_add_read(plan, peer, out, out, bytes, reduced);
    }
    let_go(shape, plan);
}

void
tc_plan_all_gather_direct(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t bytes = shape->count * shape->elem_bytes;

    tc_plan_add_copy(plan, tc_place_in(0), tc_place_out_block(shape->rank), bytes);
    for (int32_t i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_below(shape, i);

        tc_plan_add_read(plan, peer, tc_place_in(0), tc_place_out_block(peer), bytes,
                         -1);
    }
    let_go(shape, plan);
}

void
tc_plan_reduce_scatter_direct(const tc_plan_shape *shape, tc_plan *plan)
{
    tc_plan_add_reduce_read(plan, tc_place_in_block(shape->rank), tc_place_out(0),
                            tc_plan_block_bytes(shape, shape->in_blocks, shape->rank));
    let_go(shape, plan);
}
