/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective as a flat array of steps, made by a pure function per algorithm. */
#ifndef TC_COLL_PLAN_H
#define TC_COLL_PLAN_H

#include "torchcomms/backend.h"

/* What a step does. A rank has one pair lane to and one from every other rank, and one
 * multicast lane that all others read. Lanes are first in, first out: steps that use
 * one lane in one direction run one after the other, in plan order; all other steps run
 * side by side. Steps of all ranks fit together: for each SEND there is one RECV or
 * REDUCE of as many bytes at `peer`, for each MCAST one MRECV at every other rank. READ
 * and REDUCE_READ use no lane: messages of no bytes tell when a buffer may be read, and
 * when it has been. */
typedef enum tc_step_kind {
    TC_STEP_COPY, /* dst = src, local */
    TC_STEP_SEND, /* src to the pair lane to `peer` */
    TC_STEP_RECV, /* dst from the pair lane from `peer` */
    TC_STEP_REDUCE, /* dst = reduction in rank order of own src and of what every other
                       rank sends on its pair lane to this one */
    TC_STEP_MCAST, /* src to the own multicast lane */
    TC_STEP_MRECV, /* dst from the multicast lane of `peer` */
    TC_STEP_READ, /* dst = src, which lies in the buffers of `peer` */
    TC_STEP_REDUCE_READ, /* dst = reduction in rank order of src of every rank */
} tc_step_kind;

typedef enum tc_space {
    TC_SPACE_NONE,
    TC_SPACE_IN, /* call.in */
    TC_SPACE_OUT, /* call.out */
    TC_SPACE_IN_BLOCKS, /* block `block` of call.in_blocks */
    TC_SPACE_OUT_BLOCKS, /* block `block` of call.out_blocks */
} tc_space;

/* Where bytes are, without an address: the same plan serves every buffer. */
typedef struct tc_place {
    tc_space space;
    int32_t block;
    uint64_t offset; /* bytes */
} tc_place;

#define TC_AFTER_ALL (-2) /* every earlier step has to be finished */

typedef struct tc_step {
    tc_step_kind kind;
    int32_t peer; /* rank, -1 where there is none */
    int32_t after; /* index of an earlier step that has to stay ahead: one of the same
                       byte count, byte k of which byte k of this one needs, or an empty
                       one; -1: none; TC_AFTER_ALL */
    uint64_t bytes; /* a whole number of elements; may be 0, the lane then carries one
                       empty piece */
    tc_place src;
    tc_place dst;
} tc_step;

/* What the algorithms may know: everything but addresses and the transport. */
typedef struct tc_plan_shape {
    tc_op_kind kind;
    int32_t rank;
    int32_t size;
    int32_t root;
    uint64_t elem_bytes;
    uint64_t count; /* tc_call.count */
    const tc_blocks *in_blocks; /* counts only */
    const tc_blocks *out_blocks; /* counts only */
    bool direct; /* every rank can read the others' buffers */
} tc_plan_shape;

typedef struct tc_plan {
    uint32_t step_count;
    uint32_t capacity;
    tc_step *steps;
    bool no_memory; /* an append failed: the plan is incomplete */
} tc_plan;

/* Elements of block r; 0 where `blocks` is NULL. */
uint64_t
tc_blocks_count(const tc_blocks *blocks, int32_t r);

/* Address of block r; `elem_bytes` is the size of an element. NULL for a block without
 * an address. */
void *
tc_blocks_ptr(const tc_blocks *blocks, int32_t r, uint64_t elem_bytes);

/* The share of rank r when `count` elements are dealt out as evenly as possible in
 * contiguous ranges, the first ones an element longer: offset and length in
 * elements. */
void
tc_plan_share(uint64_t count, int32_t size, int32_t r, uint64_t *offset_p,
              uint64_t *count_p);

/* Makes this rank's plan of a collective; one file per algorithm family, chosen by
 * `shape->kind` and `shape->direct` (all_reduce, all_gather_single and
 * reduce_scatter_single; blocks side by side). TC_ERR_UNSUPPORTED for what is no
 * collective, or not a direct one. The plan depends on
 * nothing but the shape, and at world size 1 follows the same rules with no peers: a
 * reduction still applies the reduce function, to one source. *plan is all zero, or a
 * plan made before, whose memory serves again; after an error it has no steps. */
tc_status
tc_plan_create(const tc_plan_shape *shape, tc_plan *plan, tc_error *err);

void
tc_plan_destroy(tc_plan *plan);

/* For the algorithms: appends a step and returns its index. Without memory it returns
 * -1 and sets `no_memory`, which tc_plan_create looks at once, at the end. */
int32_t
tc_plan_append(tc_plan *plan, const tc_step *step);

/* "step 3: recv 65536 bytes from rank 2": for records and errors. */
void
tc_plan_describe(const tc_step *step, uint32_t index, char *text, size_t capacity);

#endif
