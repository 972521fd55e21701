/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine: one process page and one thread that moves what nobody waits for. */
#ifndef TC_LOOP_ENGINE_H
#define TC_LOOP_ENGINE_H

#include "loop/page.h"

typedef struct tc_engine tc_engine;

/* Something the engine moves while it is active.
 *
 * Invariant: `progress` runs on one thread of the engine at a time, and never after
 * tc_engine_detach has returned. */
typedef struct tc_engine_source {
    /* TC_OK: something moved; TC_PENDING: blocked; TC_EXPIRED: nothing outstanding, call
     * again after the next kick. */
    tc_status (*progress)(void *ctx, uint64_t now_ns);
    void *ctx;
    uint32_t active;                /* private to the engine */
    struct tc_engine_source *next;  /* private to the engine */
} tc_engine_source;

/* Makes the process page; the thread starts with the first source. One per process in
 * the Python module, one per simulated rank in C tests. */
tc_status
tc_engine_create(tc_engine **engine_p, tc_error *err);

/* Stops the thread and marks the page closed. No source is attached any more. In a forked
 * child: only forgets. */
void
tc_engine_destroy(tc_engine *engine);

tc_status
tc_engine_attach(tc_engine *engine, tc_engine_source *source, tc_error *err);

/* Returns when the engine is not inside `source` and never will be again. */
void
tc_engine_detach(tc_engine *engine, tc_engine_source *source);

/* Makes the source active. Any thread. */
void
tc_engine_kick(tc_engine *engine, tc_engine_source *source);

/* This engine's own page. */
tc_page *
tc_engine_page(const tc_engine *engine);

int
tc_engine_page_fd(const tc_engine *engine);

/* False in a forked child of the process that made it; one plain load. */
bool
tc_engine_is_ours(const tc_engine *engine);

#endif
