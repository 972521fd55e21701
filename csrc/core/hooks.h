/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that are called around the operations of a communicator, and op ids. */
#ifndef TC_CORE_HOOKS_H
#define TC_CORE_HOOKS_H

#include "core/comm.h"

/* One registration; the handle of whoever made it. */
typedef struct tc_hook tc_hook;

typedef enum tc_hook_point {
    TC_HOOK_PRE, /* after the checks, before the backend is called */
    TC_HOOK_POST, /* after the backend was called and the call did not fail */
    TC_HOOK_ABORT, /* an operation has failed; there is no event */
} tc_hook_point;

/* Of finalize, which takes none from the counter. */
#define TC_OP_ID_FINALIZE UINT64_MAX

/* One operation as hooks see it. The issuer fills it; `op_id` and `begin_ns` are set by
 * tc_hooks_begin. */
typedef struct tc_hook_event {
    tc_op_kind kind;
    bool async;
    const tc_call *call; /* NULL for split, new_window and finalize */
    const tc_split_options *split; /* NULL for all others */
    void *face; /* the issuing face's own */
    uint64_t op_id;
    uint64_t begin_ns; /* wall clock, when the pre-hooks were through */
    /* For the post-hooks. */
    tc_work *work; /* borrowed; NULL where the operation has ended */
    tc_comm *child; /* of a split, borrowed */
} tc_hook_event;

/* Anything but TC_OK ends the call: no further hook runs, nor the backend after a
 * pre-hook. Ignored of an abort hook. */
typedef tc_status (*tc_hook_fn)(void *ctx, tc_hook_point point, tc_hook_event *event,
                                tc_error *err);

/* `owner.ptr` is the function's context. It is released once, after the last run, when
 * the hook is removed or the communicator freed, on whatever thread does that, without
 * a lock held. On failure it stays the caller's. */
tc_status
tc_hook_add(tc_comm *comm, tc_hook_point point, tc_hook_fn fn, tc_owner owner,
            tc_hook **hook_p, tc_error *err);

/* From any thread, from inside a hook, also after the communicator is gone, any number
 * of times. A run that has begun goes on; no other begins. */
void
tc_hook_remove(tc_hook *hook);

/* Ends the handle; the hook stays. */
void
tc_hook_release(tc_hook *hook);

/* The one branch of a call without hooks: of any point. */
bool
tc_comm_has_hooks(const tc_comm *comm);

/* Removes all. */
void
tc_hooks_clear(tc_comm *comm);

/* Calls `visit` for the context of each hook with this function, in order, until one
 * does not return 0; returns the last result. `visit` calls nothing of this header. */
int
tc_hooks_visit(const tc_comm *comm, tc_hook_fn fn, int (*visit)(void *ctx, void *arg),
               void *arg);

/* To be called around an operation of a communicator with hooks. `begin` makes all
 * checks that need no peer, takes an op id and runs the pre-hooks in the order of their
 * registration; whoever it refuses has consumed no id unless a hook refused. Then the
 * call is made, and if it has not failed, `end` runs the post-hooks. The communicator
 * is held by the caller. */
tc_status
tc_hooks_begin(tc_comm *comm, tc_hook_event *event, tc_error *err);

tc_status
tc_hooks_end(tc_comm *comm, tc_hook_event *event, tc_error *err);

/* A call ended with `status`: runs the abort hooks if that is the failure of an
 * operation, and neither a refusal nor a wait that was left. */
void
tc_hooks_call_failed(tc_comm *comm, tc_status status);

/* The same for a work that has ended, once, by whoever sees its failure first. */
void
tc_hooks_work_ended(tc_work *work);

#endif
