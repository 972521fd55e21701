/* SPDX-License-Identifier: BSD-3-Clause */
/* gather, gather_single, scatter: the root and each other rank by their pair lane.
 *
 * Source: the flat tree; a block crosses one lane once.
 *
 * Block p has B(p) bytes. gather:
 *   root   COPY   in to its own block of out_blocks
 *          RECV   block p from p, for every other p
 *   others SEND   in to the root
 * scatter:
 *   root   SEND   block p of in_blocks to p, for every other p
 *          COPY   its own block to out
 *   others RECV   out from the root
 *
 * The root reads (scatter: writes) sum of B(p) over p != root, every other rank writes
 * (scatter: reads) B(r). The root's in (scatter: out) may be its own block. */
#include "coll/plan_build.h"

void
tc_plan_gather(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t bytes = shape->count * shape->elem_bytes;
    int32_t i;

    if (shape->rank != shape->root) {
        tc_plan_add_send(plan, shape->root, tc_place_in(0), bytes);
        return;
    }
    tc_plan_add_copy(plan, tc_place_in(0), tc_place_out_block(shape->rank), bytes);
    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_above(shape, i);

        tc_plan_add_recv(plan, peer, tc_place_out_block(peer),
                         tc_plan_block_bytes(shape, shape->out_blocks, peer), -1);
    }
}

void
tc_plan_scatter(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t bytes = shape->count * shape->elem_bytes;
    int32_t i;

    if (shape->rank != shape->root) {
        tc_plan_add_recv(plan, shape->root, tc_place_out(0), bytes, -1);
        return;
    }
    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_above(shape, i);

        tc_plan_add_send(plan, peer, tc_place_in_block(peer),
                         tc_plan_block_bytes(shape, shape->in_blocks, peer));
    }
    tc_plan_add_copy(plan, tc_place_in_block(shape->rank), tc_place_out(0), bytes);
}
