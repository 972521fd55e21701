/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan engine step by step: order, bounds, who is waited for, mismatches. */
#include "coll/run.h"

#include <string.h>

#include "sim/support/sim_world.h"
#include "support/check.h"

#define PIECE_BYTES 16u

/* One call, for which a test makes the plan by hand or by its kind. */
typedef struct rig {
    sim_world *world;
    tc_plan plan;
    tc_run *run;
} rig;

static void
rig_open(rig *g, sim_world *w, tc_call call, int32_t rank, int32_t size,
         tc_run_reduce_fn reduce)
{
    static tc_call calls[4]; /* borrowed by the runs */

    calls[rank] = call;
    g->world = w;
    CHECK(tc_run_create(&(tc_run_config){.plan = &g->plan,
                                         .call = &calls[rank],
                                         .lanes = sim_world_lanes(w, rank),
                                         .reduce = reduce,
                                         .rank = rank,
                                         .size = size,
                                         .piece_bytes = PIECE_BYTES},
                        &g->run, NULL) == TC_OK);
}

static void
rig_open_kind(rig *g, sim_world *w, tc_call call, int32_t rank, int32_t size,
              tc_run_reduce_fn reduce)
{
    tc_plan_shape shape = {.kind = call.kind,
                           .rank = rank,
                           .size = size,
                           .root = call.root,
                           .elem_bytes = 4,
                           .count = call.count,
                           .in_blocks = &call.in_blocks,
                           .out_blocks = &call.out_blocks};

    CHECK(tc_plan_create(&shape, &g->plan, NULL) == TC_OK);
    rig_open(g, w, call, rank, size, reduce);
}

static void
rig_close(rig *g)
{
    tc_run_destroy(g->run);
    tc_plan_destroy(&g->plan);
}

static void
check_step(rig *g, tc_status status, bool moved, int32_t peer)
{
    bool moved_now = !moved;
    int32_t peer_now = -2;

    CHECK(tc_run_step(g->run, &moved_now, &peer_now) == status);
    CHECK(moved_now == moved);
    CHECK(peer_now == peer);
}

static void
add_u32(void *dst, const void *const *srcs, int n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;

        for (int k = 0; k < n; k++) {
            sum += ((const uint32_t *)srcs[k])[i];
        }
        ((uint32_t *)dst)[i] = sum;
    }
}

/* A rank waits for those that a step still misses. */
static void
test_reduce_waits(void)
{
    sim_world *w = sim_world_create(3, 2, PIECE_BYTES);
    uint32_t data[3][12] = {{1}, {2}, {3}};
    rig g[3] = {0};

    for (int32_t r = 0; r < 3; r++) {
        tc_call call = {.kind = TC_OP_ALL_REDUCE,
                        .dtype = TC_INT32,
                        .count = 12,
                        .in = data[r],
                        .out = data[r]};

        rig_open_kind(&g[r], w, call, r, 3, add_u32);
    }
    check_step(&g[0], TC_PENDING, true, 1);
    check_step(&g[0], TC_PENDING, false, 1);
    check_step(&g[1], TC_PENDING, true, 2);
    check_step(&g[0], TC_PENDING, false, 2);
    CHECK(tc_run_current(g[0].run) == 2);
    check_step(&g[2], TC_PENDING, true, 1);
    check_step(&g[0], TC_PENDING, true, 1);
    check_step(&g[1], TC_OK, true, -1);
    check_step(&g[2], TC_OK, true, -1);
    check_step(&g[0], TC_OK, true, -1);
    CHECK(tc_run_current(g[0].run) == -1);
    check_step(&g[0], TC_OK, false, -1);
    for (int32_t r = 0; r < 3; r++) {
        CHECK(data[r][0] == 6);
        rig_close(&g[r]);
    }
    sim_world_destroy(w);
}

/* The lane of the multicast is full, and one reader has not come: not rank 1's fault,
 * which has sent all that fits, but rank 2's, of which nothing has come. */
static void
test_silent_peer(void)
{
    sim_world *w = sim_world_create(3, 1, PIECE_BYTES);
    uint32_t in[2][12] = {{1}, {2}};
    uint32_t out[2][36];
    rig g[2] = {0};

    for (int32_t r = 0; r < 2; r++) {
        tc_call call = {.kind = TC_OP_ALL_GATHER_SINGLE,
                        .dtype = TC_INT32,
                        .count = 12,
                        .in = in[r],
                        .out_blocks = {.base = out[r], .count = 12}};

        rig_open_kind(&g[r], w, call, r, 3, NULL);
    }
    check_step(&g[0], TC_PENDING, true, 2);
    check_step(&g[1], TC_PENDING, true, 2);
    check_step(&g[0], TC_PENDING, true, 2);
    check_step(&g[0], TC_PENDING, false, 2);
    check_step(&g[1], TC_PENDING, false, 2);
    CHECK(memcmp(out[0], in[0], sizeof(in[0])) == 0);
    CHECK(memcmp(out[0] + 12, in[1], PIECE_BYTES) == 0);
    rig_close(&g[0]);
    rig_close(&g[1]);
    sim_world_destroy(w);
}

/* A full pair lane names its reader. */
static void
test_full_lane(void)
{
    sim_world *w = sim_world_create(2, 2, PIECE_BYTES);
    uint32_t data[12] = {1};
    tc_call call = {.kind = TC_OP_REDUCE, .dtype = TC_INT32, .count = 12, .in = data};
    rig g = {0};

    call.root = 1;
    rig_open_kind(&g, w, call, 0, 2, NULL);
    check_step(&g, TC_PENDING, true, 1);
    check_step(&g, TC_PENDING, false, 1);
    rig_close(&g);
    sim_world_destroy(w);
}

static void
add_step(tc_plan *plan, tc_step_kind kind, int32_t peer, uint64_t bytes, tc_place src,
         tc_place dst)
{
    tc_step step = {.kind = kind,
                    .peer = peer,
                    .after = -1,
                    .bytes = bytes,
                    .src = src,
                    .dst = dst};

    CHECK(tc_plan_append(plan, &step) >= 0);
}

static tc_place
in_at(uint64_t offset)
{
    return (tc_place){.space = TC_SPACE_IN, .offset = offset};
}

static tc_place
out_at(uint64_t offset)
{
    return (tc_place){.space = TC_SPACE_OUT, .offset = offset};
}

static size_t
count_nonzero(const char *data, size_t bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < bytes; i++) {
        count += data[i] != 0;
    }
    return count;
}

/* A call moves a bounded number of pieces, and none of many steps is left behind. */
static void
test_bound(void)
{
    enum { STEPS = 100, STEP_PIECES = 3, BYTES = STEPS * STEP_PIECES * PIECE_BYTES };
    static char in[BYTES];
    static char out[BYTES];
    sim_world *w = sim_world_create(1, 1, PIECE_BYTES);
    tc_call call = {.dtype = TC_INT32, .in = in, .out = out};
    size_t pieces = 0;
    rig g = {0};

    memset(in, 1, sizeof(in));
    for (uint64_t i = 0; i < STEPS; i++) {
        uint64_t offset = i * STEP_PIECES * PIECE_BYTES;

        add_step(&g.plan, TC_STEP_COPY, -1, STEP_PIECES * PIECE_BYTES, in_at(offset),
                 out_at(offset));
    }
    rig_open(&g, w, call, 0, 1, NULL);
    while (pieces < STEPS * STEP_PIECES) {
        size_t left = STEPS * STEP_PIECES - pieces;

        check_step(&g, left > TC_RUN_PIECES ? TC_PENDING : TC_OK, true, -1);
        pieces += left > TC_RUN_PIECES ? TC_RUN_PIECES : left;
        CHECK(count_nonzero(out, sizeof(out)) == pieces * PIECE_BYTES);
        for (size_t i = 0; pieces >= STEPS && i < STEPS; i++) {
            CHECK(out[i * STEP_PIECES * PIECE_BYTES] == 1);
        }
    }
    rig_close(&g);
    sim_world_destroy(w);
}

/* A call that starts with the steps the one before had no time for, all of them
 * blocked, still moves the others. */
static void
test_blocked_rest(void)
{
    static char in[2 * TC_RUN_PIECES * PIECE_BYTES];
    static char out[sizeof(in)];
    sim_world *w = sim_world_create(2, 1, PIECE_BYTES);
    tc_call call = {.dtype = TC_INT32, .in = in, .out = out};
    rig g = {0};

    memset(in, 1, sizeof(in));
    for (uint64_t i = 0; i < TC_RUN_PIECES; i++) {
        uint64_t offset = i * 2 * PIECE_BYTES;

        add_step(&g.plan, TC_STEP_COPY, -1, 2 * PIECE_BYTES, in_at(offset),
                 out_at(offset));
    }
    add_step(&g.plan, TC_STEP_RECV, 1, 0, in_at(0), out_at(0));
    rig_open(&g, w, call, 0, 2, NULL);
    check_step(&g, TC_PENDING, true, -1);
    check_step(&g, TC_PENDING, true, -1);
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    check_step(&g, TC_PENDING, false, 1);
    rig_close(&g);
    sim_world_destroy(w);
}

/* Steps that share a lane run in plan order, also around a REDUCE. */
static void
test_lane_order(uint32_t slots)
{
    sim_world *w = sim_world_create(2, slots, PIECE_BYTES);
    uint32_t in[2][24];
    uint32_t out[2][24] = {0};
    uint32_t calls = 0;
    tc_status status[2] = {TC_PENDING, TC_PENDING};
    rig g[2] = {0};

    for (uint32_t i = 0; i < 24; i++) {
        in[0][i] = 1000 + i;
        in[1][i] = i;
    }
    add_step(&g[0].plan, TC_STEP_RECV, 1, 32, in_at(0), out_at(0));
    add_step(&g[0].plan, TC_STEP_REDUCE, -1, 24, in_at(0), out_at(32));
    add_step(&g[0].plan, TC_STEP_RECV, 1, 32, in_at(0), out_at(56));
    add_step(&g[0].plan, TC_STEP_RECV, 1, 8, in_at(0), out_at(88));
    add_step(&g[0].plan, TC_STEP_MCAST, -1, 20, in_at(0), out_at(0));
    add_step(&g[0].plan, TC_STEP_MCAST, -1, 0, in_at(0), out_at(0));
    add_step(&g[0].plan, TC_STEP_MCAST, -1, 28, in_at(20), out_at(0));
    add_step(&g[1].plan, TC_STEP_SEND, 0, 32, in_at(0), out_at(0));
    add_step(&g[1].plan, TC_STEP_SEND, 0, 24, in_at(32), out_at(0));
    add_step(&g[1].plan, TC_STEP_SEND, 0, 32, in_at(56), out_at(0));
    add_step(&g[1].plan, TC_STEP_SEND, 0, 8, in_at(88), out_at(0));
    add_step(&g[1].plan, TC_STEP_MRECV, 0, 20, in_at(0), out_at(0));
    add_step(&g[1].plan, TC_STEP_MRECV, 0, 0, in_at(0), out_at(0));
    add_step(&g[1].plan, TC_STEP_MRECV, 0, 28, in_at(0), out_at(20));
    for (int32_t r = 0; r < 2; r++) {
        tc_call call = {.dtype = TC_INT32, .in = in[r], .out = out[r]};

        rig_open(&g[r], w, call, r, 2, add_u32);
    }
    for (; calls < 100 && (status[0] != TC_OK || status[1] != TC_OK); calls++) {
        bool moved;
        int32_t peer;
        uint32_t r = calls % 2;

        status[r] = tc_run_step(g[r].run, &moved, &peer);
        CHECK(status[r] >= 0);
    }
    CHECK(calls < 100);
    for (uint32_t i = 0; i < 24; i++) {
        CHECK(out[0][i] == (i >= 8 && i < 14 ? i + 1000 + i - 8 : i));
    }
    CHECK(memcmp(out[1], in[0], 48) == 0);
    rig_close(&g[0]);
    rig_close(&g[1]);
    sim_world_destroy(w);
}

/* A sender with another total, seen by a receive and by a reduction. */
static void
test_other_total(void)
{
    sim_world *w = sim_world_create(3, 4, PIECE_BYTES);
    uint32_t data[3][6] = {{0}};
    rig g[3] = {0};

    for (int32_t r = 2; r >= 0; r--) {
        tc_call call = {.kind = TC_OP_REDUCE,
                        .dtype = TC_INT32,
                        .count = r == 2 ? 5 : 6,
                        .in = data[r],
                        .out = data[r]};

        rig_open_kind(&g[r], w, call, r, 3, add_u32);
    }
    check_step(&g[2], TC_OK, true, -1);
    check_step(&g[0], TC_ERR_MISMATCH, false, 2);
    check_step(&g[1], TC_OK, true, -1);
    check_step(&g[0], TC_ERR_MISMATCH, false, 2);
    CHECK(tc_run_current(g[0].run) == 0);
    for (int32_t r = 0; r < 3; r++) {
        rig_close(&g[r]);
    }
    sim_world_destroy(w);
}

/* A sender that cuts otherwise; the buffer of the reader is not touched. */
static void
test_other_pieces(void)
{
    sim_world *w = sim_world_create(3, 4, PIECE_BYTES);
    const tc_lanes *lanes = sim_world_lanes(w, 0);
    uint32_t data[6] = {7, 7, 7, 7, 7, 7};
    tc_call call = {.kind = TC_OP_BROADCAST, .dtype = TC_INT32, .count = 6};
    rig g = {0};

    call.in = data;
    call.out = data;
    memset(lanes->reserve(lanes->ctx, TC_LANE_MCAST), 0, 8);
    lanes->publish(lanes->ctx, TC_LANE_MCAST, 8, sizeof(data));
    rig_open_kind(&g, w, call, 1, 3, NULL);
    check_step(&g, TC_ERR_MISMATCH, false, 0);
    CHECK(data[0] == 7);
    rig_close(&g);
    sim_world_destroy(w);
}

/* A piece of another call. */
static void
test_other_call(void)
{
    sim_world *w = sim_world_create(2, 4, PIECE_BYTES);
    const tc_lanes *lanes = sim_world_lanes(w, 0);
    uint32_t data[4] = {0};
    tc_call call = {.kind = TC_OP_SCATTER, .dtype = TC_INT32, .count = 4, .out = data};
    rig g = {0};

    memset(lanes->reserve(lanes->ctx, 1), 0, PIECE_BYTES);
    lanes->publish(lanes->ctx, 1, PIECE_BYTES, sizeof(data));
    sim_world_set_call(w, 1, 5);
    rig_open_kind(&g, w, call, 1, 2, NULL);
    check_step(&g, TC_ERR_MISMATCH, false, 0);
    rig_close(&g);
    sim_world_destroy(w);
}

static void
check_refused(const tc_plan *plan, tc_dtype dtype, uint32_t piece_bytes,
              tc_run_reduce_fn reduce, const char *text)
{
    sim_world *w = sim_world_create(2, 1, PIECE_BYTES);
    tc_call call = {.dtype = dtype};
    tc_run *run = NULL;
    tc_error err = {0};

    CHECK(tc_run_create(&(tc_run_config){.plan = plan,
                                         .call = &call,
                                         .lanes = sim_world_lanes(w, 0),
                                         .reduce = reduce,
                                         .size = 2,
                                         .piece_bytes = piece_bytes},
                        &run, &err) == TC_ERR_INTERNAL);
    CHECK(strstr(err.message, text) != NULL);
    CHECK(run == NULL);
    sim_world_destroy(w);
}

static void
test_refused(void)
{
    tc_plan plan = {0};

    check_refused(&plan, TC_INT32, 6, NULL, "pieces of 6 bytes");
    check_refused(&plan, TC_INT32, 0, NULL, "pieces of 0 bytes");
    check_refused(&plan, TC_DTYPE_COUNT, 16, NULL, "elements of 0 bytes");
    add_step(&plan, TC_STEP_COPY, -1, 4, in_at(0), out_at(0));
    add_step(&plan, TC_STEP_REDUCE, -1, 4, in_at(0), out_at(0));
    check_refused(&plan, TC_INT32, 16, NULL, "step 1 reduces");
    tc_plan_destroy(&plan);
    tc_run_destroy(NULL);
}

int
main(void)
{
    test_reduce_waits();
    test_silent_peer();
    test_full_lane();
    test_bound();
    test_blocked_rest();
    for (uint32_t slots = 1; slots <= 6; slots++) {
        test_lane_order(slots);
    }
    test_other_total();
    test_other_pieces();
    test_other_call();
    test_refused();
    return 0;
}
