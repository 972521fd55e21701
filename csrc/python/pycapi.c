/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of functions for the c10d shim, and the communicators that it holds. */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/error.h"
#include "core/memory.h"
#include "core/registry.h"
#include "python/capi.h"
#include "python/pyhook.h"
#include "python/py.h"
#include "reduce/reduce.h"

/* In the list `state->holds` until it was dropped and a holder of the GIL has seen it.
 */
struct tc_py_hold {
    tc_comm *comm;
    tc_py_state *state;
    struct tc_py_hold *next, *prev; /* guarded by the GIL */
    struct tc_py_hold *next_dropped;
    uint32_t generation;
    uint32_t dropped;
};

static void
link_in(tc_py_state *state, tc_py_hold *hold)
{
    hold->prev = NULL;
    hold->next = state->holds;
    if (hold->next != NULL) {
        hold->next->prev = hold;
    }
    state->holds = hold;
}

static void
link_out(tc_py_state *state, tc_py_hold *hold)
{
    if (hold->prev != NULL) {
        hold->prev->next = hold->next;
    } else {
        state->holds = hold->next;
    }
    if (hold->next != NULL) {
        hold->next->prev = hold->prev;
    }
}

bool
tc_py_comm_is_held(tc_py_state *state, const tc_comm *comm)
{
    for (tc_py_hold *h = state->holds; h != NULL; h = h->next) {
        if (h->comm == comm) {
            return true;
        }
    }
    return false;
}

static void
end_hold(tc_py_state *state, tc_py_hold *hold)
{
    tc_comm *comm = hold->comm;

    link_out(state, hold);
    if (hold->generation == tc_py_generation() && !state->closed) {
        if (*tc_comm_face_slot(comm) != NULL || tc_py_comm_is_held(state, comm) ||
            tc_comm_check_usable(comm, NULL) == TC_ERR_FINALIZED) {
            tc_comm_release(comm);
        } else {
            tc_py_comm_leave(state, comm);
        }
    }
    free(hold);
}

static void
drain_dropped(tc_py_state *state)
{
    tc_py_hold *hold;

    tc_store_release_u32(&state->drop_scheduled, 0);
    hold = tc_exchange_acq_rel_ptr(&state->dropped, NULL);
    while (hold != NULL) {
        tc_py_hold *next = hold->next_dropped;

        end_hold(state, hold);
        hold = next;
    }
}

/* The main thread runs this soon, holding the GIL. */
static int
drain_when_called(void *state)
{
    drain_dropped(state);
    return 0;
}

static void
capi_drop(void *ctx, tc_py_hold *hold)
{
    tc_py_state *state = ctx;

    if (hold->generation != tc_py_generation()) {
        return;
    }
    do {
        hold->next_dropped = tc_load_acquire_ptr(&state->dropped);
    } while (!tc_cas_acq_rel_ptr(&state->dropped, hold->next_dropped, hold));
    if (!Py_IsInitialized()) {
        return;
    }
    if (PyGILState_Check()) {
        drain_dropped(state);
    } else if (tc_cas_acq_rel_u32(&state->drop_scheduled, 0, 1) &&
               Py_AddPendingCall(drain_when_called, state) != 0) {
        tc_store_release_u32(&state->drop_scheduled, 0);
    }
}

/* Steals the reference. */
static tc_py_hold *
hold_locked(tc_py_state *state, tc_comm *comm)
{
    tc_py_hold *hold = calloc(1, sizeof(*hold));

    if (hold == NULL) {
        tc_comm_release(comm);
        return NULL;
    }
    hold->comm = comm;
    hold->state = state;
    hold->generation = tc_py_generation();
    link_in(state, hold);
    return hold;
}

static tc_py_hold *
capi_hold(void *ctx, tc_comm *comm)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    tc_py_hold *hold = hold_locked(ctx, comm);

    PyGILState_Release(gil);
    return hold;
}

static tc_py_hold *
capi_hold_object(void *ctx, PyObject *obj)
{
    tc_py_state *state = ctx;
    tc_py_hold *hold;

    if (!PyObject_TypeCheck(obj, state->comm_type)) {
        PyErr_Format(PyExc_TypeError, "comm must be a torchcomms.TorchComm, but got %R",
                     Py_TYPE(obj));
        return NULL;
    }
    tc_comm_retain(((tc_py_comm *)obj)->comm);
    hold = hold_locked(state, ((tc_py_comm *)obj)->comm);
    if (hold == NULL) {
        PyErr_NoMemory();
    }
    return hold;
}

static tc_comm *
capi_comm_of(const tc_py_hold *hold)
{
    return hold->comm;
}

static PyObject *
capi_comm_object(void *ctx, tc_comm *comm)
{
    tc_comm_retain(comm);
    return tc_py_comm_wrap(ctx, comm);
}

static tc_status
capi_comm_create(void *ctx, tc_comm_options *options, tc_py_hold **hold_p,
                 tc_error *err)
{
    tc_py_state *state = ctx;
    tc_engine *engine;
    tc_comm *comm = NULL;
    tc_py_pause pause;
    tc_status status;

    drain_dropped(state);
    TC_TRY(tc_py_engine(state, &engine, err));
    options->interrupt = tc_py_pause_begin(&pause);
    status = tc_comm_create(options, engine, &comm, err);
    tc_py_pause_end(&pause);
    if (PyErr_Occurred()) {
        if (status == TC_OK) {
            tc_py_comm_leave(state, comm);
        }
        return TC_INTERRUPTED;
    }
    if (status == TC_OK) {
        *hold_p = hold_locked(state, comm);
        if (*hold_p == NULL) {
            status =
                tc_error_set(err, TC_ERR_NO_MEMORY, "communicator '%s'", options->name);
        }
    }
    return status;
}

static void
capi_set_exit(void *ctx, void (*fn)(void))
{
    ((tc_py_state *)ctx)->shim_exit = fn;
}

static void
capi_set_view(void *ctx, tc_py_view_fn fn)
{
    ((tc_py_state *)ctx)->view = fn;
}

bool
tc_py_holds_at_exit(tc_py_state *state, bool (*leave)(tc_comm *comm))
{
    bool all_left = true;

    for (tc_py_hold *h = state->holds; h != NULL; h = h->next) {
        if (h->generation == tc_py_generation()) {
            all_left = leave(h->comm) && all_left;
        }
    }
    return all_left;
}

static tc_status
check_reduction(tc_dtype dtype, tc_redop op, tc_error *err)
{
    tc_reduce_fn fn;

    return tc_reduce_find(dtype, op, &fn, err);
}

static const tc_capi table = {
    .struct_size = sizeof(tc_capi),
    .generation = tc_py_generation,
    .set_exit = capi_set_exit,
    .set_view = capi_set_view,
    .comm_create = capi_comm_create,
    .comm_hold_object = capi_hold_object,
    .comm_hold = capi_hold,
    .comm_drop = capi_drop,
    .comm_of = capi_comm_of,
    .comm_object = capi_comm_object,
    .comm_finalize = tc_comm_finalize,
    .comm_check_usable = tc_comm_check_usable,
    .comm_abort = tc_comm_abort,
    .comm_is_aborted = tc_comm_is_aborted,
    .comm_issue = tc_comm_issue,
    .comm_split = tc_comm_split,
    .comm_rank = tc_comm_rank,
    .comm_size = tc_comm_size,
    .comm_name = tc_comm_name,
    .comm_backend_name = tc_comm_backend_name,
    .comm_device = tc_comm_device,
    .comm_timeout = tc_comm_timeout,
    .comm_set_timeout = tc_comm_set_timeout,
    .work_retain = tc_work_retain,
    .work_release = tc_work_release,
    .work_set_owner = tc_work_set_owner,
    .work_get_state = tc_work_get_state,
    .work_result = tc_work_result,
    .work_on_end = tc_work_on_end,
    .work_wait = tc_work_wait,
    .comm_abort_process = tc_comm_abort_process,
    .comm_hints = tc_comm_hints,
    .comm_has_memory = tc_comm_has_memory,
    .comm_memory_alloc = tc_comm_memory_alloc,
    .hooks_begin = tc_py_hooks_begin,
    .hooks_end = tc_py_hooks_end,
    .comm_has_hooks = tc_comm_has_hooks,
    .hooks_call_failed = tc_hooks_call_failed,
    .hooks_work_ended = tc_hooks_work_ended,
    .work_waits = tc_py_work_waits,
    .backend_add = tc_registry_add,
    .store_object = tc_py_store_object,
    .reduce_check = check_reduction,
};

int
tc_py_capi_add(PyObject *module, tc_py_state *state)
{
    PyObject *capsule = PyCapsule_New((void *)&table, TC_CAPI_NAME, NULL);
    int failed = -1;

    if (capsule != NULL && PyCapsule_SetContext(capsule, state) == 0) {
        failed = PyModule_AddObjectRef(module, TC_CAPI_ATTRIBUTE, capsule);
    }
    Py_XDECREF(capsule);
    return failed;
}
