/* SPDX-License-Identifier: BSD-3-Clause */
/* What the algorithm files share: their entry points, places and step constructors. */
#ifndef TC_COLL_PLAN_BUILD_H
#define TC_COLL_PLAN_BUILD_H

#include "coll/plan.h"

/* An algorithm: appends this rank's steps. Pure; a failed append shows in the plan. */
typedef void (*tc_plan_build_fn)(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_all_reduce(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_reduce_scatter(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_reduce(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_all_gather(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_all_to_all(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_broadcast(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_gather(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_scatter(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_barrier(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_all_reduce_direct(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_all_gather_direct(const tc_plan_shape *shape, tc_plan *plan);

void
tc_plan_reduce_scatter_direct(const tc_plan_shape *shape, tc_plan *plan);

/* The i-th other rank, i from 1 to size - 1, counted upwards from the own one: started
 * from there, loops over peers of different ranks hit different peers. */
static inline int32_t
tc_plan_peer_above(const tc_plan_shape *shape, int32_t i)
{
    int32_t to_top = shape->size - shape->rank;

    return i < to_top ? shape->rank + i : i - to_top;
}

/* The same counted downwards: the order in which those above reach this rank. */
static inline int32_t
tc_plan_peer_below(const tc_plan_shape *shape, int32_t i)
{
    return tc_plan_peer_above(shape, shape->size - i);
}

static inline uint64_t
tc_plan_block_bytes(const tc_plan_shape *shape, const tc_blocks *blocks, int32_t r)
{
    return tc_blocks_count(blocks, r) * shape->elem_bytes;
}

static inline tc_place
tc_place_in(uint64_t offset)
{
    return (tc_place){.space = TC_SPACE_IN, .offset = offset};
}

static inline tc_place
tc_place_out(uint64_t offset)
{
    return (tc_place){.space = TC_SPACE_OUT, .offset = offset};
}

static inline tc_place
tc_place_in_block(int32_t block)
{
    return (tc_place){.space = TC_SPACE_IN_BLOCKS, .block = block};
}

static inline tc_place
tc_place_out_block(int32_t block)
{
    return (tc_place){.space = TC_SPACE_OUT_BLOCKS, .block = block};
}

/* Each appends one step and returns its index; see tc_step_kind. */
int32_t
tc_plan_add_copy(tc_plan *plan, tc_place src, tc_place dst, uint64_t bytes);

int32_t
tc_plan_add_send(tc_plan *plan, int32_t peer, tc_place src, uint64_t bytes);

/* `after` as in tc_step. */
int32_t
tc_plan_add_recv(tc_plan *plan, int32_t peer, tc_place dst, uint64_t bytes,
                 int32_t after);

int32_t
tc_plan_add_reduce(tc_plan *plan, tc_place src, tc_place dst, uint64_t bytes);

int32_t
tc_plan_add_mcast(tc_plan *plan, tc_place src, uint64_t bytes, int32_t after);

int32_t
tc_plan_add_mrecv(tc_plan *plan, int32_t peer, tc_place dst, uint64_t bytes);

int32_t
tc_plan_add_read(tc_plan *plan, int32_t peer, tc_place src, tc_place dst,
                 uint64_t bytes, int32_t after);

int32_t
tc_plan_add_reduce_read(tc_plan *plan, tc_place src, tc_place dst, uint64_t bytes);

#endif
