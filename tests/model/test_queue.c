/* SPDX-License-Identifier: BSD-3-Clause */
/* Several threads of one rank: whoever moves the queue, no operation is lost, ended
 * twice or out of turn, and no waiter is left asleep. */
#include <stdio.h>
#include <string.h>

#include "model/support/ops.h"

enum { THREADS = 2, CALLS = 3 };

typedef enum call_kind {
    NO_CALL,
    SYNC, /* and wait for it */
    ASYNC, /* wait for it at the end, in order */
    ASYNC_LEFT, /* never waited for: the engine's */
} call_kind;

/* Two ranks. Rank 0 has user threads, each with calls of its own, and may have its
 * engine; rank 1 has one thread that makes all those calls, by polls. */
typedef struct scene {
    const char *name;
    call_kind calls[THREADS][CALLS];
    bool engine;
    bool barriers; /* all calls alike: two threads have no order among them */
    bool forgets; /* planted: a thread that found the queue held leaves no word of it */
} scene;

typedef struct ground {
    scene scene;
    world *w;
    uint32_t running; /* user threads of rank 0 that have not ended */
    uint64_t pad[7];
    struct user {
        int32_t index;
        op_buffers *buffers; /* of its calls */
    } users[THREADS];
    op_buffers *peer_buffers;
} ground;

static ground *g;

/* A thread that fails marks `busy`, so that who frees it rings the bell; this one takes
 * the mark back. */
static tc_status
progress_and_forget(void *ctx, uint64_t now_ns)
{
    enum { HELD = 1, WANTED = 2 };

    tc_native *native = ctx;
    tc_status status = tc_native_progress(ctx, now_ns);

    (void)tc_cas_acq_rel_u32(&native->busy, WANTED, HELD);
    return status;
}

static model_op
op_of(uint32_t number)
{
    model_op barrier = {OP_BARRIER, 0, 0};
    model_op reduce = {OP_ALL_REDUCE, 0, 1 + number % 2};

    return g->scene.barriers ? barrier : reduce;
}

static uint32_t
count_calls(void)
{
    uint32_t n = 0;

    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < CALLS; i++) {
            n += g->scene.calls[t][i] != NO_CALL;
        }
    }
    return n;
}

static void
end_call(world_rank *r, tc_status status, uint32_t number, op_buffers *b,
         const tc_error *err)
{
    model_op o = op_of(number);

    if (status != TC_OK) {
        model_fail("rank %d, call %u: %s", r->rank, number, err->message);
    }
    op_check(&o, r, number, b);
}

static void
run_user(void *arg)
{
    struct user *u = arg;
    world_rank *r = &g->w->ranks[0];
    const call_kind *calls = g->scene.calls[u->index];
    tc_work *works[CALLS] = {NULL};
    tc_error err;

    for (uint32_t i = 0; i < CALLS && calls[i] != NO_CALL; i++) {
        model_op o = op_of(i);
        tc_status status;
        tc_call call;

        op_prepare(&o, r, i, &u->buffers[i], &call);
        call.async = calls[i] != SYNC;
        status = world_issue(r, &call, &works[i], &err);
        if (status == TC_PENDING && calls[i] == SYNC) {
            status = world_wait(r, works[i], &err);
            works[i] = NULL;
        }
        if (status == TC_PENDING && calls[i] == ASYNC_LEFT) {
            tc_work_release(works[i]);
            works[i] = NULL;
        }
        if (status != TC_PENDING && calls[i] != ASYNC_LEFT) {
            end_call(r, status, i, &u->buffers[i], &err);
        }
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        if (works[i] != NULL) {
            end_call(r, world_wait(r, works[i], &err), i, &u->buffers[i], &err);
        }
    }
    /* What is left is the engine's, until all has ended. */
    if (tc_fetch_sub_seq_cst_u32(&g->running, 1) == 1 && g->scene.engine) {
        MODEL_CHECK(tc_comm_finalize(r->comm, NULL, &err) == TC_OK);
        world_engine_stop(r);
    }
}

static void
run_peer(void *arg)
{
    world_rank *r = arg;
    uint32_t n = count_calls();

    for (uint32_t i = 0; i < n; i++) {
        model_op o = op_of(i);
        tc_work *work = NULL;
        tc_status status;
        tc_call call;
        tc_error err;

        op_prepare(&o, r, i, g->peer_buffers, &call);
        model_watch();
        status = world_issue(r, &call, &work, &err);
        if (status == TC_PENDING) {
            status = world_poll(r, work, &err);
        }
        end_call(r, status, i, g->peer_buffers, &err);
        world_tidy(r);
    }
}

static op_buffers *
make_buffers(size_t n)
{
    op_buffers *b = model_memory(n * sizeof(*b));

    model_sparse(b, n * sizeof(*b));
    return b;
}

static void
build(void *ctx)
{
    world_shape shape = {.size = 2, .slots = 1, .slot_bytes = 8};

    g = model_memory(sizeof(*g));
    g->scene = *(const scene *)ctx;
    g->w = world_create(&shape);
    if (g->scene.forgets) {
        g->w->backend.progress = progress_and_forget;
    }
    g->peer_buffers = make_buffers(1);
    model_name(&g->running, 4, "running");
    for (int t = 0; t < THREADS; t++) {
        char name[16];

        g->users[t] = (struct user){t, make_buffers(CALLS)};
        if (g->scene.calls[t][0] != NO_CALL) {
            snprintf(name, sizeof(name), "user %d", t);
            g->running++;
            world_thread(&g->w->ranks[0], name, run_user, &g->users[t]);
        }
    }
    if (g->scene.engine) {
        world_engine_thread(&g->w->ranks[0]);
    }
    world_thread(&g->w->ranks[1], "peer", run_peer, &g->w->ranks[1]);
}

static void
check_end(void *ctx)
{
    (void)ctx;
    for (int32_t r = 0; r < 2; r++) {
        const world_rank *rank = &g->w->ranks[r];

        MODEL_CHECK(rank->comm->membership->issued == rank->comm->membership->ended);
        MODEL_CHECK(rank->comm->refs == 1);
        MODEL_CHECK(rank->native->head == NULL);
        MODEL_CHECK(rank->native->inbox == NULL);
        MODEL_CHECK(rank->native->busy == 0);
        MODEL_CHECK(rank->native->seq == count_calls());
    }
}

static void
run(const scene *s, uint32_t preemptions)
{
    char name[120];
    model_case c = {
        .name = name,
        .build = build,
        .at_end = check_end,
        .ctx = (void *)(uintptr_t)s,
        .store_buffers = true,
        .preemptions = preemptions,
    };
    char limit[40] = "";

    if (preemptions > 0) {
        snprintf(limit, sizeof(limit), ", %u preemptions", preemptions);
    }
    snprintf(name, sizeof(name), "queue, %s%s", s->name, limit);
    if (s->forgets) {
        model_expect_fault(&c, "nobody can go on");
    } else {
        model_expect_none(&c);
    }
}

int
main(int argc, char **argv)
{
    static const scene scenes[] = {
        {.name = "two users that wait", .calls = {{SYNC}, {SYNC}}, .barriers = true},
        {.name = "a user and the engine", .calls = {{ASYNC}}, .engine = true},
        {.name = "a user that leaves it to the engine",
         .calls = {{ASYNC_LEFT}},
         .engine = true},
        {.name = "a user with two calls and the engine",
         .calls = {{ASYNC, SYNC}},
         .engine = true},
        {.name = "two users and the engine",
         .calls = {{ASYNC_LEFT}, {SYNC}},
         .engine = true,
         .barriers = true},
    };
    static const scene alone = {.name = "a user that waits", .calls = {{SYNC, SYNC}}};
    static const scene forgets = {.name = "fault: the wish for the queue is forgotten",
                                  .calls = {{SYNC}, {SYNC}},
                                  .barriers = true,
                                  .forgets = true};
    bool full = model_is_full(argc, argv);

    run(&alone, 0);
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        run(&scenes[i], 2);
    }
    run(&forgets, 0);
    /* The last scene is too large for more. */
    for (size_t i = 0; full && i + 1 < sizeof(scenes) / sizeof(scenes[0]); i++) {
        run(&scenes[i], 3);
    }
    return 0;
}
