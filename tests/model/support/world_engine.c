/* SPDX-License-Identifier: BSD-3-Clause */
/* The real engine, compiled in here: its object is made by hand, its thread is ours. */
#include "model/support/world.h"

/* The kernel has no part in a model. */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#define syscall(...) no_kernel()
#define pthread_create(...) no_kernel()
#define pthread_join(...) no_kernel()
#define pthread_setname_np(...) no_kernel()

static int
no_kernel(void)
{
    return 1;
}

#include "loop/engine.c"

tc_engine *
world_engine_create(int32_t rank, tc_page **page_p)
{
    tc_engine *engine;
    tc_page *page = model_memory(sizeof(*page));

    model_group((uint8_t)(rank + 1));
    engine = model_memory(sizeof(*engine));
    engine->page = page;
    engine->page->liveness = 1;
    engine->page_fd = -1;
    engine->ours = model_memory(sizeof(*engine->ours));
    *engine->ours = 1;
    engine->running = true;
    pthread_mutex_init(&engine->lock, NULL);
    /* Only written, and full of time stamps. */
    model_ignore(engine->page->ring.entries, sizeof(engine->page->ring.entries));
    model_name(&engine->page->bell.word, 4, "rank %d bell word", rank);
    model_name(&engine->page->bell.sleepers, 4, "rank %d bell sleepers", rank);
    model_name(&engine->page->ring, sizeof(engine->page->ring), "rank %d record", rank);
    model_name(engine->page, sizeof(*engine->page), "rank %d page", rank);
    model_name(&engine->idle_bell, sizeof(engine->idle_bell), "rank %d idle bell",
               rank);
    model_group(0);
    *page_p = engine->page;
    return engine;
}

void
world_engine_run(void *engine)
{
    engine_main(engine);
}

/* The first half of stop_thread; the second frees what the engine may still use here.
 */
void
world_engine_stop(world_rank *r)
{
    tc_store_release_u32(&r->engine->stop, 1);
    tc_bell_wake(&r->engine->idle_bell);
    tc_bell_wake(&r->engine->page->bell);
}
