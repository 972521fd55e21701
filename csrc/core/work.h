/* SPDX-License-Identifier: BSD-3-Clause */
/* One issued operation as its caller sees it: state, result, waiting. */
#ifndef TC_CORE_WORK_H
#define TC_CORE_WORK_H

#include "torchcomms/backend.h"

typedef struct tc_work tc_work;
struct tc_comm;

/* In the order of Python's WorkStatus. */
typedef enum tc_work_state {
    TC_WORK_NOT_STARTED,
    TC_WORK_INPROGRESS,
    TC_WORK_COMPLETED,
    TC_WORK_TIMEDOUT,
    TC_WORK_ERROR,
} tc_work_state;

/* What keeps the buffers of a call alive: `release` runs once, when the last reference
 * to the work is gone, on whatever thread drops it. */
typedef struct tc_owner {
    void *ptr;
    void (*release)(void *ptr);
} tc_owner;

void
tc_work_retain(tc_work *work);

void
tc_work_release(tc_work *work);

/* May be called once, by the issuer, after the work was handed out. */
void
tc_work_set_owner(tc_work *work, tc_owner owner);

/* TC_BACKEND_... of its backend. */
uint32_t
tc_work_backend_flags(const tc_work *work);

/* Never blocks and makes no progress. */
tc_work_state
tc_work_get_state(const tc_work *work);

/* Who is told that a work has ended; memory of whoever asks, until `fn` is called. */
typedef struct tc_work_watch {
    void (*fn)(void *ctx);
    void *ctx;
    struct tc_work_watch *next; /* the work's */
} tc_work_watch;

/* Runs `watch->fn` once, when the work has ended: at once where it has already, else on
 * the thread that ends it, which may hold locks. It neither blocks nor takes a lock,
 * and calls nothing of this header. In the order of the calls. */
void
tc_work_on_end(tc_work *work, tc_work_watch *watch);

/* The result of a finished work: TC_OK, or its error with the text; TC_PENDING before.
 */
tc_status
tc_work_result(const tc_work *work, tc_error *err);

/* How a waiting thread may be called away; `interrupted` is asked every few
 * milliseconds. All NULL: never. */
typedef struct tc_interrupt {
    bool (*interrupted)(void *ctx);
    void *ctx;
} tc_interrupt;

/* The only place where the core blocks. Helps the communicator along until the work has
 * ended and returns its result; leaves earlier with TC_EXPIRED after `timeout_ns`
 * (UINT64_MAX: never) or TC_INTERRUPTED, and the operation then goes on without the
 * caller. The communicator's own timeout ends the work itself. Any number of times,
 * from any thread. */
tc_status
tc_work_wait(tc_work *work, uint64_t timeout_ns, const tc_interrupt *interrupt,
             tc_error *err);

#endif
