/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of the process, and communicators that end without finalize: dropped, or
 * left over at exit. */
#include <stdlib.h>

#include "base/error.h"
#include "python/py.h"

/* Before the interpreter ends and while modules are whole. */
static bool
register_at_exit(tc_py_state *state)
{
    PyObject *module = PyType_GetModule(state->comm_type);
    PyObject *function =
        module != NULL ? PyObject_GetAttrString(module, "_at_exit") : NULL;
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *done = NULL;

    if (function != NULL && atexit != NULL) {
        done = PyObject_CallMethod(atexit, "register", "O", function);
    }
    Py_XDECREF(done);
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    return done != NULL;
}

tc_status
tc_py_engine(tc_py_state *state, tc_engine **engine_p, tc_error *err)
{
    tc_engine *engine;
    tc_status status;

    if (state->closed) {
        return tc_error_set(err, TC_ERR_FINALIZED,
                            "the interpreter is exiting: no new communicator");
    }
    if (state->engine != NULL && state->engine_generation == tc_py_generation()) {
        *engine_p = state->engine;
        return TC_OK;
    }
    if (!state->at_exit) {
        state->at_exit = register_at_exit(state);
        if (!state->at_exit) {
            return tc_error_set(err, TC_ERR_NO_MEMORY, "exit function");
        }
    }
    /* A forked child makes its own; the parent's objects still point to the old one. */
    status = tc_engine_create(&engine, err);
    if (status != TC_OK) {
        return status;
    }
    state->engine = engine;
    state->engine_generation = tc_py_generation();
    state->orphans = NULL;
    state->orphan_count = 0;
    *engine_p = engine;
    return TC_OK;
}

static bool
at_once(void *ctx)
{
    (void)ctx;
    return true;
}

/* Finalizes what has nothing in flight. */
static bool
finalize_if_idle(tc_comm *comm)
{
    const tc_interrupt interrupt = {at_once, NULL};

    return tc_comm_finalize(comm, &interrupt, NULL) != TC_INTERRUPTED;
}

static void
release_idle_orphans(tc_py_state *state)
{
    size_t kept = 0;

    for (size_t i = 0; i < state->orphan_count; i++) {
        if (finalize_if_idle(state->orphans[i])) {
            tc_comm_release(state->orphans[i]);
        } else {
            state->orphans[kept++] = state->orphans[i];
        }
    }
    state->orphan_count = kept;
}

void
tc_py_comm_leave(tc_py_state *state, tc_comm *comm)
{
    tc_comm **grown;

    release_idle_orphans(state);
    if (finalize_if_idle(comm)) {
        tc_comm_release(comm);
        return;
    }
    /* Its operations go on; it is left later. */
    grown = realloc(state->orphans, (state->orphan_count + 1) * sizeof(grown[0]));
    if (grown != NULL) {
        state->orphans = grown;
        state->orphans[state->orphan_count++] = comm;
    }
}

/* A rank that exits cannot carry its operations to an end: the others shall know. True
 * when the backend has let go. */
static bool
leave_at_exit(tc_comm *comm)
{
    if (finalize_if_idle(comm)) {
        return true;
    }
    tc_comm_abort(comm);
    return finalize_if_idle(comm);
}

PyObject *
tc_py_at_exit(PyObject *module, PyObject *Py_UNUSED(none))
{
    tc_py_state *state = PyModule_GetState(module);
    bool all_left = true;

    state->closed = true;
    if (state->engine == NULL || state->engine_generation != tc_py_generation()) {
        Py_RETURN_NONE;
    }
    for (tc_py_comm *c = state->comms; c != NULL; c = c->next) {
        if (c->generation == tc_py_generation()) {
            all_left = leave_at_exit(c->comm) && all_left;
        }
    }
    all_left = tc_py_holds_at_exit(state, leave_at_exit) && all_left;
    for (size_t i = 0; i < state->orphan_count; i++) {
        bool left = leave_at_exit(state->orphans[i]);

        all_left = left && all_left;
        if (left) {
            tc_comm_release(state->orphans[i]);
        }
    }
    free(state->orphans);
    state->orphans = NULL;
    state->orphan_count = 0;
    if (all_left) {
        tc_engine *engine = state->engine;
        PyThreadState *thread;

        state->engine = NULL;
        /* The engine's thread may be waiting for the GIL. */
        thread = PyEval_SaveThread();
        tc_engine_destroy(engine);
        PyEval_RestoreThread(thread);
    }
    if (state->shim_exit != NULL) {
        Py_BEGIN_ALLOW_THREADS state->shim_exit();
        Py_END_ALLOW_THREADS
    }
    tc_py_garbage_drain(state);
    state->silent = true;
    Py_RETURN_NONE;
}
