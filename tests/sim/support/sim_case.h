/* SPDX-License-Identifier: BSD-3-Clause */
/* One collective of all ranks: buffers, calls, the right result and what it costs. */
#ifndef TC_SIM_CASE_H
#define TC_SIM_CASE_H

#include "coll/run.h"

/* Blocks of different sizes, some of them empty, instead of `count` elements each. */
#define SIM_UNEVEN UINT64_MAX

typedef struct sim_spec {
    tc_op_kind kind;
    int32_t size;
    int32_t root;
    /* all_reduce, reduce, broadcast: of the tensor; else of a block, or SIM_UNEVEN. */
    uint64_t count;
    bool in_place;
    bool direct; /* the ranks read each other's buffers */
    uint32_t seed;
} sim_spec;

/* One rank's memory holds all blocks of both sides, each followed by guard bytes unless
 * the operation wants them side by side. In place, offsets of both sides coincide. */
typedef struct sim_memory {
    char *data;
    char *want; /* what `data` has to be when the operation is done */
    size_t bytes;
    size_t *in_offset;
    size_t *out_offset;
    void **in_ptrs;
    void **out_ptrs;
    uint64_t *in_counts;
    uint64_t *out_counts;
    tc_call call;
} sim_memory;

typedef struct sim_case {
    sim_spec spec;
    tc_dtype dtype;
    uint64_t
        *counts; /* [r * size + p]: elements of block p of rank r, see sim_case.c */
    sim_memory *ranks;
    const void **peer_in; /* by rank: what a direct plan reads */
    const void **peer_out;
} sim_case;

typedef struct sim_flow {
    uint64_t bytes;
    uint64_t pieces;
} sim_flow;

/* What one rank moved, by kind of lane. */
typedef struct sim_traffic {
    sim_flow pair_out;
    sim_flow pair_in;
    sim_flow mcast_out;
    sim_flow mcast_in;
} sim_traffic;

/* Whether an operation has a direct plan. */
bool
sim_kind_direct(tc_op_kind kind);

/* Whether blocks of an operation may differ in size. */
bool
sim_kind_uneven(tc_op_kind kind);

sim_case *
sim_case_create(const sim_spec *spec);

void
sim_case_destroy(sim_case *c);

/* Rank r is done: its memory has to be right, and is then overwritten, as its user may
 * do from here on. False after telling on stderr what differs. */
bool
sim_case_finish(sim_case *c, int32_t r);

/* The traffic of rank r according to the comments of the algorithms. */
sim_traffic
sim_case_traffic(const sim_case *c, int32_t r, uint32_t piece_bytes);

tc_plan_shape
sim_case_shape(const sim_case *c, int32_t r);

/* A reduction whose bits depend on the order and which changes a single source. */
tc_run_reduce_fn
sim_case_reduce(const sim_case *c);

/* Next of a sequence of pseudo-random numbers. */
uint32_t
sim_random(uint32_t *state);

#endif
