/* SPDX-License-Identifier: BSD-3-Clause */
/* All ranks of a communicator in one thread: lanes in memory, and who runs when. */
#ifndef TC_SIM_WORLD_H
#define TC_SIM_WORLD_H

#include "sim/support/sim_case.h"

typedef enum sim_order {
    SIM_ROUND_ROBIN,
    SIM_RANDOM, /* any rank, and lanes at times look full or empty */
    SIM_LOWEST, /* always the lowest rank that can move */
    SIM_HIGHEST, /* always the highest rank that can move */
    SIM_RANDOM_RANK, /* a fixed random preference; its last rank starves */
    SIM_ORDER_COUNT
} sim_order;

typedef struct sim_world sim_world;

sim_world *
sim_world_create(int32_t size, uint32_t slots, uint32_t piece_bytes);

void
sim_world_destroy(sim_world *w);

/* Runs the cases one after the other on every rank, without any barrier between them,
 * and checks results, traffic, that nothing locks up and that no lane keeps a piece.
 * False after telling on stderr what is wrong. */
bool
sim_world_run(sim_world *w, sim_case *const *cases, uint32_t case_count,
              sim_order order, uint32_t seed);

/* For tests that drive a single rank: its lanes, and the call it is in, which the
 * pieces it sends are marked with and those it reads have to be of. */
const tc_lanes *
sim_world_lanes(sim_world *w, int32_t r);

void
sim_world_set_call(sim_world *w, int32_t r, uint32_t call);

#endif
