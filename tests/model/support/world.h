/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of one native communicator in a model: real objects over a small segment.
 */
#ifndef TC_MODEL_WORLD_H
#define TC_MODEL_WORLD_H

#include "backend/native/state.h"
#include "core/object.h"
#include "model/support/model.h"

enum { WORLD_RANKS = 4 };

typedef struct world_rank {
    int32_t rank;
    tc_engine *engine;
    tc_comm *comm;
    tc_native *native;
    struct world *world;
} world_rank;

typedef struct world {
    int32_t size;
    tc_backend backend; /* native, but its waiters sleep at once */
    world_rank ranks[WORLD_RANKS];
} world;

/* How large the lanes are. */
typedef struct world_shape {
    int32_t size;
    uint32_t slots; /* of pair and multicast lanes */
    uint32_t slot_bytes; /* of them; an exchange slot holds 64 bytes */
} world_shape;

/* While building. No engine thread runs; world_engine_thread makes one. */
world *
world_create(const world_shape *shape);

/* A thread of this rank's process. */
void
world_thread(const world_rank *r, const char *name, model_body_fn body, void *arg);

void
world_engine_thread(world_rank *r);

/* Inside a thread: makes the engine's thread end; nothing is outstanding. */
void
world_engine_stop(world_rank *r);

/* Inside a thread: issues the call; TC_PENDING with a work, or its result. */
tc_status
world_issue(world_rank *r, const tc_call *call, tc_work **work_p, tc_error *err);

/* Polls until the work has ended, gives it back and returns its result. For a
 * synchronous call, issued after model_watch: it is pending because it is blocked. */
tc_status
world_poll(world_rank *r, tc_work *work, tc_error *err);

/* The same by tc_work_wait, which sleeps. */
tc_status
world_wait(world_rank *r, tc_work *work, tc_error *err);

/* Clears what idle objects remember of past calls, so that states differ only in what
 * matters. */
void
world_tidy(world_rank *r);

/* For world.c: the parts that need the inside of a file of csrc. */
tc_engine *
world_engine_create(int32_t rank, tc_page **page_p);

void
world_engine_run(void *engine);

tc_native *
world_native_create(const tc_comm_config *config, tc_shm_segment *segment);

#endif
