/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine: one process page and one thread that moves what nobody waits for. */
#ifndef TC_LOOP_ENGINE_H
#define TC_LOOP_ENGINE_H

#include "loop/heap.h"

typedef struct tc_engine tc_engine;

/* Something the engine moves while it is active.
 *
 * Invariants. `progress` and `retire` run on the engine's thread. The source is active
 * while `kicks` differs from `seen`. After `retire` the engine does not know it any
 * more. */
typedef struct tc_engine_source {
    /* TC_OK: something moved; TC_PENDING: blocked; TC_EXPIRED: nothing outstanding,
     * call again after the next kick. Never waits. */
    tc_status (*progress)(void *ctx, uint64_t now_ns);
    /* Frees the source, after tc_engine_retire. */
    void (*retire)(void *ctx);
    void *ctx;
    /* private to the engine */
    uint32_t kicks;
    uint32_t seen;
    uint32_t retired;
    struct tc_engine_source *next;
} tc_engine_source;

/* Makes the process page and its heap. One per process in the Python module, one per
 * simulated rank in C tests. */
tc_status
tc_engine_create(tc_engine **engine_p, tc_error *err);

/* Starts the thread, unless it runs. Before the page is shown to peers: from then on
 * they notice this process's death. */
tc_status
tc_engine_start(tc_engine *engine, tc_error *err);

/* Retires what is left, stops the thread and marks the page closed. In a forked child
 * it only forgets. Not from the engine's thread. */
void
tc_engine_destroy(tc_engine *engine);

/* Adds a source, not yet active, to a started engine. */
void
tc_engine_attach(tc_engine *engine, tc_engine_source *source);

/* The engine lets go of the source and calls its `retire` soon, or has done so when
 * this returns. Any thread, also from inside `progress`; never waits. */
void
tc_engine_retire(tc_engine *engine, tc_engine_source *source);

/* Makes the source active. Any thread; never waits. */
void
tc_engine_kick(tc_engine *engine, tc_engine_source *source);

/* This engine's own page. */
tc_page *
tc_engine_page(const tc_engine *engine);

/* Its descriptor, to be handed to peers. */
int
tc_engine_page_fd(const tc_engine *engine);

/* Memory that peers can map. Blocks outlive the engine. */
tc_heap *
tc_engine_heap(const tc_engine *engine);

/* False in a forked child of the process that made it; one plain load. */
bool
tc_engine_is_ours(const tc_engine *engine);

#endif
