/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's thread and its sources: kicked, moved, retired, freed. */
#include <sched.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "loop/engine.h"
#include "support/check.h"

enum { SOURCES = 3000 };

/* Lives in memory of its own, so that a sanitizer sees who touches it too late. */
typedef struct source {
    tc_engine_source base;
    uint32_t moved;
    uint32_t *freed; /* counts all */
} source;

static tc_status
progress(void *ctx, uint64_t now_ns)
{
    source *s = ctx;

    (void)now_ns;
    tc_fetch_add_seq_cst_u32(&s->moved, 1);
    return TC_EXPIRED;
}

/* As long as it is there the thread stays awake. */
static tc_status
stay_busy(void *ctx, uint64_t now_ns)
{
    (void)ctx;
    (void)now_ns;
    return TC_OK;
}

static void
retire(void *ctx)
{
    source *s = ctx;
    uint32_t *freed = s->freed;

    free(s);
    tc_fetch_add_seq_cst_u32(freed, 1);
}

static source *
attach(tc_engine *engine, tc_status (*step)(void *ctx, uint64_t now_ns),
       uint32_t *freed)
{
    source *s = calloc(1, sizeof(*s));

    CHECK(s != NULL);
    s->freed = freed;
    s->base.progress = step;
    s->base.retire = retire;
    s->base.ctx = s;
    tc_engine_attach(engine, &s->base);
    return s;
}

static void
await(const uint32_t *word, uint32_t value)
{
    while (tc_load_seq_cst_u32(word) < value) {
        sched_yield();
    }
}

static tc_engine *
started(void)
{
    tc_engine *engine;
    tc_error err;

    CHECK(tc_engine_create(&engine, &err) == TC_OK);
    CHECK(tc_engine_start(engine, &err) == TC_OK);
    return engine;
}

/* The thread may free a source before the call that retires it has returned. */
static void
test_retire_while_awake(void)
{
    tc_engine *engine = started();
    uint32_t freed = 0;
    source *busy = attach(engine, stay_busy, &freed);

    tc_engine_kick(engine, &busy->base);
    for (int i = 0; i < SOURCES; i++) {
        tc_engine_retire(engine, &attach(engine, progress, &freed)->base);
    }
    await(&freed, SOURCES);
    tc_engine_retire(engine, &busy->base);
    await(&freed, SOURCES + 1);
    tc_engine_destroy(engine);
}

/* A thread that sleeps is woken by a kick and by a source that goes. */
static void
test_sleeping(void)
{
    tc_engine *engine = started();
    uint32_t freed = 0;

    for (uint32_t i = 0; i < 20; i++) {
        source *s = attach(engine, progress, &freed);

        CHECK(tc_load_seq_cst_u32(&s->moved) == 0);
        tc_engine_kick(engine, &s->base);
        await(&s->moved, 1);
        tc_engine_retire(engine, &s->base);
        await(&freed, i + 1);
    }
    tc_engine_destroy(engine);
}

static void
test_destroy_retires_what_is_left(void)
{
    tc_engine *engine = started();
    uint32_t freed = 0;

    attach(engine, progress, &freed);
    attach(engine, stay_busy, &freed);
    tc_engine_destroy(engine);
    CHECK(freed == 2);
}

int
main(void)
{
    test_retire_while_awake();
    test_sleeping();
    test_destroy_retires_what_is_left();
    return 0;
}
