/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce_scatter, reduce_scatter_v, reduce_scatter_single: direct, one exchange.
 *
 * Source: direct (pairwise) exchange, as in Thakur, Rabenseifner and Gropp (IJHPCA
 * 2005), section on long-message reduce-scatter, with the pairs side by side.
 *
 * in_blocks has one block B(p) per rank. Rank r:
 *   SEND   block p to p, for every other p
 *   REDUCE block r and what the others sent, into out
 *
 * Rank r of n writes sum of B(p) over p != r to pair lanes and reads (n - 1) B(r).
 *
 * out may be block r of in_blocks: nothing else reads that block. */
#include "coll/plan_build.h"

void
tc_plan_reduce_scatter(const tc_plan_shape *shape, tc_plan *plan)
{
    int32_t i;

    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_above(shape, i);

        tc_plan_add_send(plan, peer, tc_place_in_block(peer),
                         tc_plan_block_bytes(shape, shape->in_blocks, peer));
    }
    tc_plan_add_reduce(plan, tc_place_in_block(shape->rank), tc_place_out(0),
                       tc_plan_block_bytes(shape, shape->in_blocks, shape->rank));
}
