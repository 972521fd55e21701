/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce: every rank sends to the root, which combines in rank order.
 *
 * Source: the flat tree. It keeps the left-to-right order of ranks that the same bits
 * everywhere ask for, and needs no memory for partial results.
 *
 * A message of N bytes. The root:
 *   REDUCE in and what the others sent, into out
 * every other rank:
 *   SEND   in to the root
 *
 * A rank other than the root writes N bytes to a pair lane; the root of n ranks reads
 * (n - 1) N. out of the others is not touched; in == out is right. */
#include "coll/plan_build.h"

void
tc_plan_reduce(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t bytes = shape->count * shape->elem_bytes;

    if (shape->rank == shape->root) {
        tc_plan_add_reduce(plan, tc_place_in(0), tc_place_out(0), bytes);
    } else {
        tc_plan_add_send(plan, shape->root, tc_place_in(0), bytes);
    }
}
