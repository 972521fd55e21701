/* SPDX-License-Identifier: BSD-3-Clause */
/* No wake-up of base/bell.h is lost, whoever sleeps and whoever rings. */
#include "base/bell.h"

#include <stdio.h>

#include "model/support/model.h"

/* How the wakers and sleepers go about it; all but HONEST break the protocol. */
typedef enum conduct {
    HONEST,
    RINGS_FIRST, /* before it publishes */
    STORES_RELEASE, /* publishes by a store that the ring's load can overtake */
    NO_SECOND_LOOK, /* sleeps without looking after the preparation */
    LOOKS_FIRST, /* reads the word only when it sleeps */
    CHECKS_BEFORE_STORE, /* reads the sleepers, publishes, then wakes */
    CONDUCT_COUNT
} conduct;

static const char *const conduct_names[CONDUCT_COUNT] = {
    "honest",         "rings first",    "publishes by a release store",
    "no second look", "word read late", "sleepers read early",
};

typedef struct scene {
    int sleepers;
    int rounds;
    conduct conduct;
} scene;

/* Shared by the threads. */
typedef struct ground {
    tc_bell bell;
    tc_bell back; /* the waker sleeps on it until all have seen the round */
    uint64_t round;
    uint64_t pad[7];
    uint64_t seen[2][8];
    scene scene;
} ground;

static void
publish(ground *g, uint64_t round)
{
    switch (g->scene.conduct) {
    case RINGS_FIRST:
        tc_bell_ring(&g->bell);
        tc_store_seq_cst_u64(&g->round, round);
        break;
    case STORES_RELEASE:
        tc_store_release_u64(&g->round, round);
        tc_bell_ring(&g->bell);
        break;
    case CHECKS_BEFORE_STORE: {
        bool asleep = tc_load_seq_cst_u32(&g->bell.sleepers) != 0;

        tc_store_seq_cst_u64(&g->round, round);
        if (asleep) {
            tc_bell_wake(&g->bell);
        }
        break;
    }
    default:
        tc_store_seq_cst_u64(&g->round, round);
        tc_bell_ring(&g->bell);
        break;
    }
}

static void
await_round(ground *g, uint64_t round)
{
    while (tc_load_acquire_u64(&g->round) < round) {
        uint32_t word = tc_bell_prepare(&g->bell);

        if (g->scene.conduct != NO_SECOND_LOOK &&
            tc_load_acquire_u64(&g->round) >= round) {
            tc_bell_cancel(&g->bell);
            continue;
        }
        if (g->scene.conduct == LOOKS_FIRST) {
            word = tc_load_seq_cst_u32(&g->bell.word);
        }
        tc_bell_sleep(&g->bell, word, 1);
    }
}

static bool
all_have_seen(const ground *g, uint64_t round)
{
    for (int i = 0; i < g->scene.sleepers; i++) {
        if (tc_load_acquire_u64(&g->seen[i][0]) < round) {
            return false;
        }
    }
    return true;
}

static void
run_waker(void *arg)
{
    ground *g = arg;

    for (uint64_t round = 1; round <= (uint64_t)g->scene.rounds; round++) {
        publish(g, round);
        while (!all_have_seen(g, round)) {
            uint32_t word = tc_bell_prepare(&g->back);

            if (all_have_seen(g, round)) {
                tc_bell_cancel(&g->back);
            } else {
                tc_bell_sleep(&g->back, word, 1);
            }
        }
    }
}

static void
run_sleeper(void *arg)
{
    uint64_t *seen = arg;
    ground *g = (ground *)(uintptr_t)seen[1];

    for (uint64_t round = 1; round <= (uint64_t)g->scene.rounds; round++) {
        await_round(g, round);
        tc_store_seq_cst_u64(seen, round);
        tc_bell_ring(&g->back);
    }
    MODEL_CHECK(tc_load_acquire_u64(&g->round) == (uint64_t)g->scene.rounds);
}

static void
build(void *ctx)
{
    ground *g = model_memory(sizeof(*g));

    g->scene = *(const scene *)ctx;
    model_name(&g->bell.word, 4, "bell word");
    model_name(&g->bell.sleepers, 4, "bell sleepers");
    model_name(&g->back, sizeof(g->back), "back bell");
    model_name(&g->round, 8, "round");
    model_thread("waker", run_waker, g);
    for (int i = 0; i < g->scene.sleepers; i++) {
        char name[16];

        g->seen[i][1] = (uint64_t)(uintptr_t)g;
        snprintf(name, sizeof(name), "sleeper %d", i);
        model_name(g->seen[i], 8, "seen by %d", i);
        model_thread(name, run_sleeper, g->seen[i]);
    }
}

static void
run(int sleepers, int rounds, conduct how, bool store_buffers)
{
    scene s = {sleepers, rounds, how};
    char name[96];
    model_case c = {
        .name = name,
        .build = build,
        .ctx = &s,
        .store_buffers = store_buffers,
    };

    snprintf(name, sizeof(name), "bell, %d sleeper%s, %d rounds, %s%s", sleepers,
             sleepers > 1 ? "s" : "", rounds, conduct_names[how],
             store_buffers ? "" : ", sequentially consistent");
    if (how == HONEST || (how == STORES_RELEASE && !store_buffers)) {
        model_expect_none(&c);
    } else {
        model_expect_fault(&c, "nobody can go on");
    }
}

int
main(int argc, char **argv)
{
    bool full = model_is_full(argc, argv);

    run(1, 3, HONEST, true);
    run(2, 2, HONEST, true);
    if (full) {
        run(2, 3, HONEST, true);
    }
    for (conduct how = HONEST + 1; how < CONDUCT_COUNT; how++) {
        run(1, 2, how, true);
        run(2, 1, how, true);
    }
    /* That this fault is seen at all is the store buffer's merit. */
    run(1, 2, STORES_RELEASE, false);
    return 0;
}
