/* SPDX-License-Identifier: BSD-3-Clause */
/* all_gather, all_gather_v, all_gather_single: every rank multicasts its block.
 *
 * Source: the direct all-gather of shared-memory collectives (each block is written
 * once and read by all; Graham and Shipman, EuroPVM/MPI 2008).
 *
 * Rank r has one block of B(r) bytes. Rank r:
 *   COPY   in to block r of out_blocks
 *   MCAST  in
 *   MRECV  block p from p, for every other p
 *
 * Rank r writes B(r) bytes to its multicast lane and reads sum of B(p) over p != r.
 *
 * in may be block r of out_blocks: the COPY then does nothing. */
#include "coll/plan_build.h"

void
tc_plan_all_gather(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t bytes = shape->count * shape->elem_bytes;
    int32_t i;

    if (shape->size > 1) {
        tc_plan_add_mcast(plan, tc_place_in(0), bytes, -1);
    }
    tc_plan_add_copy(plan, tc_place_in(0), tc_place_out_block(shape->rank), bytes);
    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_below(shape, i);

        tc_plan_add_mrecv(plan, peer, tc_place_out_block(peer),
                          tc_plan_block_bytes(shape, shape->out_blocks, peer));
    }
}
