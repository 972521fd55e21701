/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all, all_to_all_single, all_to_all_v_single: direct exchange in rotated order.
 *
 * Source: the linear-shift exchange (rank r starts with r + 1), so that no rank is hit
 * by all others at once; Thakur, Rabenseifner and Gropp (IJHPCA 2005).
 *
 * S(p) and R(p) are the bytes of block p of in_blocks and out_blocks. Rank r:
 *   SEND   block p to p, for p = r + 1, r + 2, ...
 *   COPY   block r of in_blocks to block r of out_blocks
 *   RECV   block p from p, for p = r - 1, r - 2, ...; behind the SEND to p where both
 *          have as many bytes
 *
 * Rank r writes sum of S(p) over p != r and reads sum of R(p) over p != r.
 *
 * In place (the same blocks, as many bytes both ways for each pair) is right: byte k of
 * block p is overwritten only when the SEND has copied it out. It cannot lock up
 * either: let a be the one of a pair that has sent no more than b. If a's lane is full,
 * b has a piece to receive and has itself sent that piece, so b can go on. In place
 * with other sizes each way has no meaning and is for the caller to refuse. */
#include "coll/plan_build.h"

void
tc_plan_all_to_all(const tc_plan_shape *shape, tc_plan *plan)
{
    int32_t first = 0;
    int32_t i;

    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_above(shape, i);
        int32_t sent =
            tc_plan_add_send(plan, peer, tc_place_in_block(peer),
                             tc_plan_block_bytes(shape, shape->in_blocks, peer));

        if (i == 1) {
            first = sent;
        }
    }
    tc_plan_add_copy(plan, tc_place_in_block(shape->rank),
                     tc_place_out_block(shape->rank),
                     tc_plan_block_bytes(shape, shape->in_blocks, shape->rank));
    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_below(shape, i);
        uint64_t bytes = tc_plan_block_bytes(shape, shape->out_blocks, peer);
        bool same = bytes == tc_plan_block_bytes(shape, shape->in_blocks, peer);
        /* The rank i below is the one size - i above: the SEND to it is known. */
        int32_t sent = first + shape->size - 1 - i;

        tc_plan_add_recv(plan, peer, tc_place_out_block(peer), bytes, same ? sent : -1);
    }
}
