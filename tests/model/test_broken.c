/* SPDX-License-Identifier: BSD-3-Clause */
/* A broken communicator: whoever breaks it, all members end, with one cause. */
#include <stdio.h>
#include <string.h>

#include "model/support/ops.h"

enum { RANKS = 3 };

typedef struct scene {
    int32_t breakers; /* ranks 0 to breakers - 1 abort it */
    bool late; /* when their first call is under way */
    bool disagree; /* nobody aborts, but rank 0 makes another call than the rest */
    bool sleeps; /* waits as tc_work_wait does, else by polls */
    bool overwrites; /* planted: they write the cause without having claimed the word */
} scene;

typedef struct ground {
    scene scene;
    world *w;
    char causes[RANKS][sizeof(((tc_error *)0)->message)];
} ground;

static ground *g;

static tc_status
broken_status(void)
{
    return g->scene.disagree ? TC_ERR_MISMATCH : TC_ERR_ABORTED;
}

static void
note_cause(world_rank *r)
{
    const tc_native *native = r->native;

    MODEL_CHECK(native->broken == broken_status());
    MODEL_CHECK(native->head == NULL);
    snprintf(g->causes[r->rank], sizeof(g->causes[0]), "%s", native->cause.message);
}

static void
break_it(world_rank *r)
{
    tc_shm_state *state = tc_shm_segment_state(r->native->segment);

    if (!g->scene.overwrites) {
        tc_comm_abort(r->comm);
        return;
    }
    snprintf(state->message, sizeof(state->message), "rank %d aborted it", r->rank);
    state->status = TC_ERR_ABORTED;
    state->rank = r->rank;
    tc_exchange_acq_rel_u32(&state->state, 2);
    tc_shm_ring_all(r->native->segment);
}

static tc_status
call(world_rank *r, bool breaks)
{
    tc_call barrier = {.kind = TC_OP_BARRIER};
    tc_call empty = {.kind = TC_OP_ALL_REDUCE, .dtype = TC_INT32};
    bool differs = g->scene.disagree && r->rank == 0;
    tc_work *work = NULL;
    tc_error err;
    tc_status status;

    model_watch();
    status = world_issue(r, differs ? &empty : &barrier, &work, &err);
    if (breaks) {
        break_it(r);
    }
    if (status != TC_PENDING) {
        return status;
    }
    /* A poll would first wait for somebody else to write. */
    return g->scene.sleeps || breaks ? world_wait(r, work, &err)
                                     : world_poll(r, work, &err);
}

/* The first call may still succeed; after that everybody fails, for ever. */
static void
run_rank(void *arg)
{
    world_rank *r = arg;
    bool breaks = r->rank < g->scene.breakers;
    tc_status status = TC_OK;

    if (breaks && !g->scene.late) {
        break_it(r);
    }
    for (int i = 0; i < 2 && status == TC_OK; i++) {
        status = call(r, breaks && g->scene.late && i == 0);
    }
    MODEL_CHECK(status == broken_status());
    note_cause(r);
    MODEL_CHECK(call(r, false) == broken_status());
}

static void
build(void *ctx)
{
    world_shape shape = {.size = RANKS, .slots = 1, .slot_bytes = 8};

    g = model_memory(sizeof(*g));
    g->scene = *(const scene *)ctx;
    g->w = world_create(&shape);
    for (int32_t r = 0; r < RANKS; r++) {
        char name[16];

        snprintf(name, sizeof(name), "rank %d", r);
        world_thread(&g->w->ranks[r], name, run_rank, &g->w->ranks[r]);
    }
}

static void
compare_causes(void *ctx)
{
    (void)ctx;
    for (int32_t r = 1; r < RANKS; r++) {
        if (strcmp(g->causes[0], g->causes[r]) != 0) {
            model_fail("rank 0 was told '%s', rank %d '%s'", g->causes[0], r,
                       g->causes[r]);
        }
    }
}

static void
run(const char *name, int32_t breakers, bool late, bool sleeps, bool fine)
{
    scene s = {.breakers = breakers, .late = late, .sleeps = sleeps};
    model_case c = {
        .name = name,
        .build = build,
        .at_end = compare_causes,
        .ctx = &s,
        .store_buffers = true,
        .fine = fine,
    };

    model_expect_none(&c);
}

static void
run_disagreement(bool sleeps)
{
    scene s = {.disagree = true, .sleeps = sleeps};
    model_case c = {
        .name = sleeps ? "broken by a call of its own, 3 ranks that sleep"
                       : "broken by a call of its own, 3 ranks",
        .build = build,
        .at_end = compare_causes,
        .ctx = &s,
        .store_buffers = true,
    };

    model_expect_none(&c);
}

static void
find_overwriting(void)
{
    scene s = {.breakers = 2, .sleeps = true, .overwrites = true};
    model_case c = {
        .name = "broken, fault: the word is not claimed",
        .build = build,
        .at_end = compare_causes,
        .ctx = &s,
        .store_buffers = true,
    };

    model_expect_fault(&c, "was told");
}

int
main(int argc, char **argv)
{
    run("broken by one rank of 3 that sleep", 1, false, true, false);
    run("broken by two ranks of 3 that sleep", 2, false, true, true);
    run("broken by one rank of 3 in its call", 1, true, false, false);
    run("broken by two ranks of 3 in their calls", 2, true, false, false);
    run("broken by three ranks of 3 in their calls", 3, true, false, false);
    run_disagreement(false);
    if (model_is_full(argc, argv)) {
        run_disagreement(true);
        run("broken by two ranks of 3 in their calls, finely", 2, true, false, true);
        run("broken by three ranks of 3 in their calls, finely", 3, true, false, true);
        run("broken by one rank of 3 in its call, that sleep", 1, true, true, false);
        run("broken by two ranks of 3 in their calls, that sleep", 2, true, true,
            false);
    }
    find_overwriting();
    return 0;
}
