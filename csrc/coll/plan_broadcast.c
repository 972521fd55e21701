/* SPDX-License-Identifier: BSD-3-Clause */
/* broadcast: the root multicasts, all others read.
 *
 * Source: the shared-buffer broadcast of shared-memory collectives (Graham and Shipman,
 * EuroPVM/MPI 2008): one write, however many readers.
 *
 * A message of N bytes. The root:
 *   MCAST  in
 * every other rank:
 *   MRECV  out from the root
 *
 * The root writes N bytes to its multicast lane; every other rank reads N. */
#include "coll/plan_build.h"

void
tc_plan_broadcast(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t bytes = shape->count * shape->elem_bytes;

    if (shape->size == 1) {
        return;
    }
    if (shape->rank == shape->root) {
        tc_plan_add_mcast(plan, tc_place_in(0), bytes, -1);
    } else {
        tc_plan_add_mrecv(plan, shape->root, tc_place_out(0), bytes);
    }
}
