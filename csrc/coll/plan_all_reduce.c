/* SPDX-License-Identifier: BSD-3-Clause */
/* all_reduce in two phases: a direct reduce-scatter, then an all-gather by multicast.
 *
 * Source: reduce-scatter followed by all-gather is Rabenseifner's algorithm (ICCS 2004)
 * with both phases direct, since any two ranks are one hop apart.
 *
 * The message of N bytes is dealt out in one chunk C(r) per rank. Rank r:
 *   SEND   chunk p of in to p, for every other p
 *   REDUCE chunk r of in and of what the others sent, into chunk r of out
 *   MCAST  chunk r of out, behind the REDUCE
 *   MRECV  chunk p of out from p, for every other p
 *
 * Rank r of n writes N - C(r) bytes to pair lanes and C(r) to its multicast lane, and
 * reads (n - 1) C(r) + N - C(r): with N/n a chunk 1 N written, 2 (n - 1)/n N read.
 *
 * In place (in == out) is right: byte k of chunk p is overwritten only by the MRECV of
 * it, hence after p has multicast it, hence after p has reduced it, for which p needed
 * this rank's piece with byte k: it had been copied out, also where the SEND was held
 * up by a full lane. Chunk r is read by the REDUCE only, which may write over its
 * source. */
#include "coll/plan_build.h"

static void
chunk(const tc_plan_shape *shape, int32_t r, uint64_t *offset_p, uint64_t *bytes_p)
{
    tc_plan_share(shape->count, shape->size, r, offset_p, bytes_p);
    *offset_p *= shape->elem_bytes;
    *bytes_p *= shape->elem_bytes;
}

void
tc_plan_all_reduce(const tc_plan_shape *shape, tc_plan *plan)
{
    uint64_t offset;
    uint64_t bytes;
    int32_t reduced;
    int32_t i;

    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_above(shape, i);

        chunk(shape, peer, &offset, &bytes);
        tc_plan_add_send(plan, peer, tc_place_in(offset), bytes);
    }
    chunk(shape, shape->rank, &offset, &bytes);
    reduced =
        tc_plan_add_reduce(plan, tc_place_in(offset), tc_place_out(offset), bytes);
    if (shape->size > 1) {
        tc_plan_add_mcast(plan, tc_place_out(offset), bytes, reduced);
    }
    for (i = 1; i < shape->size; i++) {
        int32_t peer = tc_plan_peer_below(shape, i);

        chunk(shape, peer, &offset, &bytes);
        tc_plan_add_mrecv(plan, peer, tc_place_out(offset), bytes);
    }
}
