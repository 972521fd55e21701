/* SPDX-License-Identifier: BSD-3-Clause */
/* The structs behind comm.h and work.h, for the files of core only. */
#ifndef TC_CORE_OBJECT_H
#define TC_CORE_OBJECT_H

#include <pthread.h>

#include "core/comm.h"

enum { TC_WORK_INLINE_WORDS = 64 };

typedef struct tc_hook_list tc_hook_list;
typedef struct tc_membership tc_membership;

/* Invariants. `op` is first: the backend gives it back by address. `state` leaves
 * TC_WORK_INPROGRESS by one compare-and-swap; `status` and `error` are written before
 * it by the winner and constant afterwards. A handed-out work holds one reference for
 * the flight (dropped by the winner), one for each holder, and one reference to
 * `comm` and one to `membership`. */
struct tc_work {
    tc_op op;
    uint32_t refs;
    uint32_t state; /* tc_work_state */
    tc_status status;
    tc_comm *comm;
    tc_membership *membership;
    tc_owner owner;
    uint32_t failure_seen; /* the abort hooks were run for it */
    /* Newest first. Taken by one exchange when the work has ended, which leaves a mark;
     * who comes afterwards runs its function itself. */
    tc_work_watch *watches;
    void *arrays; /* copies of the call's arrays: `inline_arrays`, or from malloc */
    uint64_t inline_arrays[TC_WORK_INLINE_WORDS];
    tc_error error;
};

/* The time between two reconfigures: one object of the backend and its works. It
 * outlives the communicator's interest in it while a work, or whoever waits for one,
 * still needs the backend's object (docs/design/reconfigure.md).
 *
 * Invariants. `spare` holds at most one idle work, taken and put by exchange, so that
 * the small-message path allocates nothing. Operations in flight are `issued - ended`.
 * References: the communicator's, and one of each work that was handed out. */
struct tc_membership {
    const tc_backend *backend;
    void *ctx; /* the backend's object; NULL until it is made */
    tc_work *spare;
    uint64_t issued; /* works that were accepted and not finished at once */
    uint64_t ended;
    uint32_t spins; /* of the last wait; see wait.c */
    uint32_t refs;
};

/* The one word that says whether operations may be issued. */
typedef enum tc_comm_state {
    TC_COMM_READY,
    TC_COMM_UNCONFIGURED, /* has no ranks: waits for a reconfigure */
    TC_COMM_FINALIZED, /* for ever */
} tc_comm_state;

/* Invariants. `membership` is NULL exactly while there are no ranks, where `rank` is -1
 * and `size` 0; whoever changes it, or uses it from a thread that does not issue, holds
 * `lock`. `moving` is set by the one thread that is about the endpoint; after finalize
 * the last of those who could use that closes it. */
struct tc_comm {
    const tc_backend *backend;
    tc_membership *membership;
    uint64_t timeout_ns;
    int32_t rank;
    int32_t size;
    uint32_t state; /* tc_comm_state */
    uint32_t aborted;
    uint32_t refs;
    pthread_mutex_t lock;
    bool moving; /* under `lock` */
    void *endpoint; /* the backend's; NULL until somebody asks for the handle */
    char *handle;
    uint64_t uuid; /* of the membership, if that came from a reconfigure */
    bool has_uuid;
    bool reconfigurable;
    bool abort_process;
    tc_device device;
    struct tc_engine *engine;
    char *name;
    char *backend_name;
    tc_hint *hints;
    size_t hint_count;
    void *face;
    tc_hook_list *hooks; /* NULL until the first is added; see hooks.c */
};

/* An object without a backend's part yet: `membership->ctx` is to be filled, or, of a
 * reconfigurable one, there is no membership. */
tc_status
tc_comm_alloc(const tc_comm_options *options, const tc_backend *backend,
              struct tc_engine *engine, tc_comm **comm_p, tc_error *err);

void
tc_comm_free(tc_comm *comm);

/* A membership without a backend's object; one reference. NULL without memory. */
tc_membership *
tc_membership_create(const tc_backend *backend);

void
tc_membership_retain(tc_membership *membership);

/* The last one destroys the backend's object. */
void
tc_membership_release(tc_membership *membership);

/* For tc_membership_wait: whether every accepted operation has ended. */
bool
tc_membership_is_idle(const void *membership);

/* Fails what is in flight, on every rank, with this text. */
void
tc_membership_revoke(tc_membership *membership, const char *why);

/* Closes the endpoint of a finalized communicator, unless a reconfigure, which will do
 * it, is using it. */
void
tc_comm_close_endpoint(tc_comm *comm);

/* What the backend is told about it; without a store. */
void
tc_comm_fill_config(const tc_comm *comm, const tc_interrupt *interrupt,
                    tc_comm_config *config_p);

/* Checks a call against the communicator; nothing is changed. */
tc_status
tc_call_check(const tc_call *call, int32_t rank, int32_t size, tc_error *err);

/* Checks the ranks of a child and finds this rank's place in it (-1: in none). */
tc_status
tc_split_check(const tc_split *split, int32_t rank, int32_t size, int32_t *child_rank_p,
               tc_error *err);

/* The same for the options of a split, and whether the backend has it. */
tc_status
tc_comm_check_split(const tc_comm *comm, const tc_split_options *options,
                    tc_error *err);

/* When the communicator is freed; handles may stay. */
void
tc_hooks_free(tc_comm *comm);

/* Ends an accepted operation: what tc_host.complete points to. */
void
tc_work_complete(tc_op *op, tc_status status);

/* An idle work with the call copied in; NULL without memory. */
tc_work *
tc_work_take(tc_comm *comm, tc_membership *membership, const tc_call *call);

/* Gives an idle work back: no reference, no owner. */
void
tc_work_put(tc_membership *membership, tc_work *work);

/* Polls, yields and sleeps, moving the communicator along, until `done`. TC_OK,
 * TC_EXPIRED at `deadline_ns` or TC_INTERRUPTED. */
tc_status
tc_membership_wait(tc_membership *membership, bool (*done)(const void *ctx),
                   const void *ctx, uint64_t deadline_ns,
                   const tc_interrupt *interrupt);

#endif
