/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's thread: liveness word, sources in turn, sleeping. */
#include "loop/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* An engine with blocked sources looks up this often: deaths ring no bell, and
 * deadlines pass silently. */
#define TICK_NS (25 * TC_NSEC_PER_MSEC)
#define IDLE_NS (10 * TC_NSEC_PER_SEC)
/* Sweeps with a yield between them before it sleeps: waking costs the waker 6 us. The
 * model looks at sleeping, not at how late it starts. */
#ifdef TC_MODEL
#define YIELDS 0u
#else
#define YIELDS 100u
#endif

/* Invariants. `sources` and what `next` chains are written by whoever holds `lock`; the
 * engine holds it during a sweep, so nobody else waits for it on a fast path (kick and
 * retire do not take it). `ours` lies on a page that a fork wipes. */
struct tc_engine {
    tc_page *page;
    int page_fd;
    tc_heap *heap;
    uint32_t *ours;
    pthread_mutex_t lock;
    tc_engine_source *sources;
    tc_bell idle_bell; /* slept on while no source is active */
    uint32_t stop;
    bool running;
    pthread_t thread;
    struct robust_list node;
    struct robust_list_head robust;
};

static const size_t wipe_bytes = 4096;

/* A word that is 1 here and 0 in every forked child. */
static tc_status
make_ours(uint32_t **ours_p, tc_error *err)
{
    void *at = mmap(NULL, wipe_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        return tc_error_errno(err, "mmap of %zu bytes", wipe_bytes);
    }
    if (madvise(at, wipe_bytes, MADV_WIPEONFORK) != 0) {
        tc_status status = tc_error_errno(err, "madvise(MADV_WIPEONFORK)");

        munmap(at, wipe_bytes);
        return status;
    }
    *ours_p = at;
    **ours_p = 1;
    return TC_OK;
}

tc_status
tc_engine_create(tc_engine **engine_p, tc_error *err)
{
    tc_status status;
    tc_engine *engine = calloc(1, sizeof(*engine));

    if (engine == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "engine object");
    }
    status = make_ours(&engine->ours, err);
    if (status != TC_OK) {
        goto err_free;
    }
    status = tc_page_create(&engine->page, &engine->page_fd, err);
    if (status != TC_OK) {
        goto err_unmap;
    }
    status = tc_heap_create(engine->page, &engine->heap, err);
    if (status != TC_OK) {
        goto err_page;
    }
    pthread_mutex_init(&engine->lock, NULL);
    *engine_p = engine;
    return TC_OK;

err_page:
    tc_page_unmap(engine->page);
    close(engine->page_fd);
err_unmap:
    munmap(engine->ours, wipe_bytes);
err_free:
    free(engine);
    return status;
}

/* From here on the kernel marks the page's liveness word when this thread ends,
 * whatever ends it. The list has one node; it and the head are private, only the word
 * they lead to is shared. Replaces glibc's own list, so this thread takes no robust
 * mutex. */
static void
announce_life(tc_engine *engine)
{
    engine->node.next = &engine->robust.list;
    engine->robust.list.next = &engine->node;
    engine->robust.list_op_pending = NULL;
    engine->robust.futex_offset =
        (long)((char *)&engine->page->liveness - (char *)&engine->node);
    syscall(SYS_set_robust_list, &engine->robust, sizeof(engine->robust));
    tc_store_release_u32(&engine->page->liveness, (uint32_t)syscall(SYS_gettid));
}

static void
announce_end(tc_engine *engine)
{
    tc_store_release_u32(&engine->page->closed, 1);
    engine->robust.list.next = &engine->robust.list;
}

static bool
is_active(const tc_engine_source *source)
{
    return tc_load_seq_cst_u32(&source->kicks) != source->seen;
}

/* One turn over all sources. Returns whether anything moved; *active_p: whether any
 * source is still active. */
static bool
sweep(tc_engine *engine, bool *active_p)
{
    uint64_t now_ns = tc_clock_ns();
    bool moved = false;
    bool active = false;

    pthread_mutex_lock(&engine->lock);
    for (tc_engine_source **at = &engine->sources; *at != NULL;) {
        tc_engine_source *source = *at;
        uint32_t kicks = tc_load_seq_cst_u32(&source->kicks);

        if (tc_load_acquire_u32(&source->retired) != 0) {
            *at = source->next;
            source->retire(source->ctx);
            continue;
        }
        if (kicks != source->seen) {
            tc_status status = source->progress(source->ctx, now_ns);

            moved = moved || status == TC_OK;
            source->seen = status == TC_EXPIRED ? kicks : source->seen;
            active = active || is_active(source);
        }
        at = &source->next;
    }
    pthread_mutex_unlock(&engine->lock);
    *active_p = active;
    return moved;
}

/* Sleeps until a peer or a kick rings; looks once more before. */
static void
doze(tc_engine *engine, bool active)
{
    tc_bell *bell = active ? &engine->page->bell : &engine->idle_bell;
    uint32_t word = tc_bell_prepare(bell);
    bool still_active;

    if (sweep(engine, &still_active) || still_active != active ||
        tc_load_acquire_u32(&engine->stop) != 0) {
        tc_bell_cancel(bell);
    } else {
        tc_bell_sleep(bell, word, active ? TICK_NS : IDLE_NS);
    }
}

static void *
engine_main(void *arg)
{
    tc_engine *engine = arg;
    uint32_t still = 0;

    announce_life(engine);
    while (tc_load_acquire_u32(&engine->stop) == 0) {
        bool active;

        if (sweep(engine, &active)) {
            still = 0;
        } else if (active && still != YIELDS) {
            still++;
            sched_yield();
        } else {
            doze(engine, active);
        }
    }
    announce_end(engine);
    return NULL;
}

/* Signals are for the user's threads. */
static tc_status
start_thread(tc_engine *engine, tc_error *err)
{
    sigset_t all;
    sigset_t old;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&engine->thread, NULL, engine_main, engine);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        errno = code;
        return tc_error_errno(err, "pthread_create of the engine thread");
    }
    engine->running = true;
    pthread_setname_np(engine->thread, "torchcomms");
    return TC_OK;
}

static void
ring_both(tc_engine *engine)
{
    tc_bell_ring(&engine->idle_bell);
    tc_bell_ring(&engine->page->bell);
}

tc_status
tc_engine_start(tc_engine *engine, tc_error *err)
{
    tc_status status = TC_OK;

    if (!tc_engine_is_ours(engine)) {
        return tc_error_set(err, TC_ERR_FORKED,
                            "process %d is a fork of the one that made the engine",
                            (int)getpid());
    }
    pthread_mutex_lock(&engine->lock);
    if (!engine->running) {
        status = start_thread(engine, err);
    }
    pthread_mutex_unlock(&engine->lock);
    /* Peers take a word of 0 for "not yet born". */
    while (status == TC_OK && tc_load_acquire_u32(&engine->page->liveness) == 0) {
        sched_yield();
    }
    return status;
}

void
tc_engine_attach(tc_engine *engine, tc_engine_source *source)
{
    source->kicks = 0;
    source->seen = 0;
    source->retired = 0;
    pthread_mutex_lock(&engine->lock);
    source->next = engine->sources;
    engine->sources = source;
    pthread_mutex_unlock(&engine->lock);
}

void
tc_engine_retire(tc_engine *engine, tc_engine_source *source)
{
    tc_fetch_add_seq_cst_u32(&source->retired, 1);
    /* Its thread may be awake and have freed the source by now. */
    ring_both(engine);
}

void
tc_engine_kick(tc_engine *engine, tc_engine_source *source)
{
    tc_fetch_add_seq_cst_u32(&source->kicks, 1);
    ring_both(engine);
}

static void
stop_thread(tc_engine *engine)
{
    tc_store_release_u32(&engine->stop, 1);
    tc_bell_wake(&engine->idle_bell);
    tc_bell_wake(&engine->page->bell);
    pthread_join(engine->thread, NULL);
    for (tc_engine_source *source = engine->sources; source != NULL;) {
        tc_engine_source *next = source->next;

        source->retire(source->ctx);
        source = next;
    }
}

void
tc_engine_destroy(tc_engine *engine)
{
    if (tc_engine_is_ours(engine)) {
        if (engine->running) {
            stop_thread(engine);
        }
        tc_heap_close(engine->heap);
        tc_page_unmap(engine->page);
    }
    close(engine->page_fd);
    munmap(engine->ours, wipe_bytes);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

tc_page *
tc_engine_page(const tc_engine *engine)
{
    return engine->page;
}

int
tc_engine_page_fd(const tc_engine *engine)
{
    return engine->page_fd;
}

tc_heap *
tc_engine_heap(const tc_engine *engine)
{
    return engine->heap;
}

bool
tc_engine_is_ours(const tc_engine *engine)
{
    return tc_load_relaxed_u32(engine->ours) != 0;
}
