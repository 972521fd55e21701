/* SPDX-License-Identifier: BSD-3-Clause */
/* The hooks of a communicator: a list that may change while it is walked. */
#include "core/hooks.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/object.h"

/* Invariants. All fields are guarded by the list's lock, except those that are constant
 * after tc_hook_add. A removed hook stays linked, and so a way to those behind it,
 * until nobody walks the list. Its owner is released by whoever makes `removed` and no
 * `runs` both true. References: one of the list while it is linked, one of the handle.
 */
struct tc_hook {
    tc_hook_list *list;
    tc_hook *next;
    uint64_t number; /* rises along the list */
    tc_hook_point point;
    tc_hook_fn fn;
    tc_owner owner;
    uint32_t refs;
    uint32_t runs;
    bool removed;
};

/* `refs`: one of the communicator, one of each handle. */
struct tc_hook_list {
    pthread_mutex_t lock;
    tc_hook *first;
    tc_hook **end; /* where the next one is linked */
    uint64_t numbers;
    uint32_t walkers;
    uint32_t refs;
    uint32_t count; /* not removed; atomic, read without the lock */
};

/* Of the process, whatever the communicator. */
static uint64_t op_ids;

/* The list ------------------------------------------------------------------------- */

static tc_hook_list *
list_of(const tc_comm *comm)
{
    return tc_load_acquire_ptr(&comm->hooks);
}

static tc_hook_list *
make_list(void)
{
    tc_hook_list *list = calloc(1, sizeof(*list));

    if (list != NULL && pthread_mutex_init(&list->lock, NULL) != 0) {
        free(list);
        return NULL;
    }
    if (list != NULL) {
        list->end = &list->first;
        list->refs = 1;
    }
    return list;
}

static void
release_list(tc_hook_list *list)
{
    if (tc_fetch_sub_seq_cst_u32(&list->refs, 1) == 1) {
        pthread_mutex_destroy(&list->lock);
        free(list);
    }
}

/* The communicator's, made at its first hook. */
static tc_hook_list *
need_list(tc_comm *comm)
{
    tc_hook_list *list = list_of(comm);

    if (list == NULL) {
        list = make_list();
        if (list != NULL && !tc_cas_acq_rel_ptr(&comm->hooks, NULL, list)) {
            release_list(list);
            list = list_of(comm);
        }
    }
    return list;
}

static void
unref_hook_locked(tc_hook *hook)
{
    if (--hook->refs == 0) {
        free(hook);
    }
}

static void
sweep_locked(tc_hook_list *list)
{
    tc_hook **at = &list->first;

    if (list->walkers != 0) {
        return;
    }
    while (*at != NULL) {
        tc_hook *hook = *at;

        if (hook->removed) {
            *at = hook->next;
            unref_hook_locked(hook);
        } else {
            at = &hook->next;
        }
    }
    list->end = at;
}

/* Marks the hook; true where its owner is the caller's to release. */
static bool
remove_locked(tc_hook *hook)
{
    if (hook->removed) {
        return false;
    }
    hook->removed = true;
    tc_fetch_sub_seq_cst_u32(&hook->list->count, 1);
    return hook->runs == 0;
}

static void
release_owner(tc_owner owner)
{
    if (owner.release != NULL) {
        owner.release(owner.ptr);
    }
}

/* Registration --------------------------------------------------------------------- */

tc_status
tc_hook_add(tc_comm *comm, tc_hook_point point, tc_hook_fn fn, tc_owner owner,
            tc_hook **hook_p, tc_error *err)
{
    tc_hook_list *list = need_list(comm);
    tc_hook *hook = list != NULL ? calloc(1, sizeof(*hook)) : NULL;

    if (hook == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "hook of communicator '%s'",
                            comm->name);
    }
    *hook =
        (tc_hook){.list = list, .point = point, .fn = fn, .owner = owner, .refs = 2};
    tc_fetch_add_seq_cst_u32(&list->refs, 1);
    pthread_mutex_lock(&list->lock);
    hook->number = ++list->numbers;
    *list->end = hook;
    list->end = &hook->next;
    tc_fetch_add_seq_cst_u32(&list->count, 1);
    pthread_mutex_unlock(&list->lock);
    *hook_p = hook;
    return TC_OK;
}

void
tc_hook_remove(tc_hook *hook)
{
    tc_hook_list *list = hook->list;
    bool ours;

    pthread_mutex_lock(&list->lock);
    ours = remove_locked(hook);
    sweep_locked(list);
    pthread_mutex_unlock(&list->lock);
    /* The handle keeps the hook. */
    if (ours) {
        release_owner(hook->owner);
    }
}

void
tc_hook_release(tc_hook *hook)
{
    tc_hook_list *list = hook->list;

    pthread_mutex_lock(&list->lock);
    unref_hook_locked(hook);
    pthread_mutex_unlock(&list->lock);
    release_list(list);
}

bool
tc_comm_has_hooks(const tc_comm *comm)
{
    const tc_hook_list *list = list_of(comm);

    return list != NULL && tc_load_acquire_u32(&list->count) != 0;
}

/* One by one, since an owner is released without the lock. */
static bool
remove_first(tc_hook_list *list)
{
    tc_owner owner = {0};
    bool found = false;

    pthread_mutex_lock(&list->lock);
    for (tc_hook *hook = list->first; hook != NULL && !found; hook = hook->next) {
        if (!hook->removed) {
            found = true;
            owner = hook->owner;
            if (!remove_locked(hook)) {
                owner.release = NULL;
            }
        }
    }
    sweep_locked(list);
    pthread_mutex_unlock(&list->lock);
    release_owner(owner);
    return found;
}

void
tc_hooks_clear(tc_comm *comm)
{
    tc_hook_list *list = list_of(comm);

    while (list != NULL && remove_first(list)) {
    }
}

void
tc_hooks_free(tc_comm *comm)
{
    tc_hooks_clear(comm);
    if (comm->hooks != NULL) {
        release_list(comm->hooks);
        comm->hooks = NULL;
    }
}

int
tc_hooks_visit(const tc_comm *comm, tc_hook_fn fn, int (*visit)(void *ctx, void *arg),
               void *arg)
{
    tc_hook_list *list = list_of(comm);
    int result = 0;

    if (list == NULL) {
        return 0;
    }
    pthread_mutex_lock(&list->lock);
    for (tc_hook *h = list->first; h != NULL && result == 0; h = h->next) {
        if (h->fn == fn && !h->removed) {
            result = visit(h->owner.ptr, arg);
        }
    }
    pthread_mutex_unlock(&list->lock);
    return result;
}

/* Running -------------------------------------------------------------------------- */

/* Gives the lock away while the hook runs. */
static tc_status
run_locked(tc_hook *hook, tc_hook_event *event, tc_error *err)
{
    tc_hook_list *list = hook->list;
    tc_status status;

    hook->runs++;
    pthread_mutex_unlock(&list->lock);
    status = hook->fn(hook->owner.ptr, hook->point, event, err);
    pthread_mutex_lock(&list->lock);
    if (--hook->runs == 0 && hook->removed) {
        tc_owner owner = hook->owner;

        /* Linked as long as the caller walks. */
        pthread_mutex_unlock(&list->lock);
        release_owner(owner);
        pthread_mutex_lock(&list->lock);
    }
    return status;
}

/* Hooks that are added meanwhile are left for the next time. */
static tc_status
run_all(tc_comm *comm, tc_hook_point point, tc_hook_event *event, tc_error *err)
{
    tc_hook_list *list = list_of(comm);
    tc_status status = TC_OK;
    uint64_t last;

    if (list == NULL) {
        return TC_OK;
    }
    pthread_mutex_lock(&list->lock);
    list->walkers++;
    last = list->numbers;
    for (tc_hook *h = list->first; h != NULL && h->number <= last; h = h->next) {
        if (h->point == point && !h->removed) {
            status = run_locked(h, event, err);
        }
        if (status != TC_OK && point != TC_HOOK_ABORT) {
            break;
        }
    }
    list->walkers--;
    sweep_locked(list);
    pthread_mutex_unlock(&list->lock);
    return status;
}

static tc_status
check_event(const tc_comm *comm, const tc_hook_event *event, tc_error *err)
{
    tc_status status = tc_comm_check_usable(comm, err);

    /* What never had ranks can be left, too. */
    if (event->kind == TC_OP_FINALIZE && status == TC_ERR_NOT_INITIALIZED) {
        return TC_OK;
    }
    TC_TRY(status);
    if (event->split != NULL) {
        return tc_comm_check_split(comm, event->split, err);
    }
    if (event->call == NULL) {
        return TC_OK;
    }
    TC_TRY(tc_call_check(event->call, comm->rank, comm->size, err));
    return comm->backend->check(comm->membership->ctx, event->call, err);
}

tc_status
tc_hooks_begin(tc_comm *comm, tc_hook_event *event, tc_error *err)
{
    TC_TRY(check_event(comm, event, err));
    event->op_id = event->kind == TC_OP_FINALIZE ? TC_OP_ID_FINALIZE
                                                 : tc_fetch_add_relaxed_u64(&op_ids, 1);
    TC_TRY(run_all(comm, TC_HOOK_PRE, event, err));
    event->begin_ns = tc_clock_wall_ns();
    return TC_OK;
}

tc_status
tc_hooks_end(tc_comm *comm, tc_hook_event *event, tc_error *err)
{
    if (event->kind == TC_OP_SPLIT && event->child == NULL) {
        return TC_OK;
    }
    return run_all(comm, TC_HOOK_POST, event, err);
}

static bool
is_failure(tc_status status)
{
    return status <= TC_ERR_TIMEOUT && status != TC_ERR_FINALIZED &&
           status != TC_ERR_NOT_INITIALIZED && status != TC_ERR_FORKED;
}

void
tc_hooks_call_failed(tc_comm *comm, tc_status status)
{
    if (is_failure(status)) {
        (void)run_all(comm, TC_HOOK_ABORT, NULL, NULL);
    }
}

void
tc_hooks_work_ended(tc_work *work)
{
    tc_status status = tc_work_result(work, NULL);

    if (is_failure(status) && tc_exchange_acq_rel_u32(&work->failure_seen, 1) == 0) {
        (void)run_all(work->comm, TC_HOOK_ABORT, NULL, NULL);
    }
}
