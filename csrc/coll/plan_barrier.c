/* SPDX-License-Identifier: BSD-3-Clause */
/* barrier: every rank multicasts an empty piece and reads everybody's.
 *
 * Source: the all-to-all flag barrier, the fastest for few ranks (engine facts,
 * section 1); with a multicast lane it takes one write per rank.
 *
 * Rank r:
 *   MCAST  nothing
 *   MRECV  nothing from p, for every other p
 *
 * No bytes; one message written and n - 1 read per rank. */
#include "coll/plan_build.h"

void
tc_plan_barrier(const tc_plan_shape *shape, tc_plan *plan)
{
    static const tc_place nowhere = {.space = TC_SPACE_NONE};
    int32_t i;

    if (shape->size == 1) {
        return;
    }
    tc_plan_add_mcast(plan, nowhere, 0, -1);
    for (i = 1; i < shape->size; i++) {
        tc_plan_add_mrecv(plan, tc_plan_peer_below(shape, i), nowhere, 0);
    }
}
