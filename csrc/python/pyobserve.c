/* SPDX-License-Identifier: BSD-3-Clause */
/* TorchWork._observe: functions that are told when an operation starts, is waited for,
 * and ends. */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "python/pyhook.h"

/* Invariants. Guarded by the GIL, except `end_ns`, which is set once, by the thread
 * that ends the work or by whoever sees it ended before. `refs`: one of the TorchWork,
 * one of the flight, which lasts until a holder of the GIL has heard of the end. While
 * it lasts `work` is a reference and the watch is in the module's list. */
struct tc_py_watch {
    tc_py_later later; /* first */
    tc_work_watch end;
    tc_work *work;
    PyObject *fns; /* a list */
    uint64_t begin_ns;
    uint64_t end_ns;
    uint32_t refs;
    bool ended; /* reported */
    struct tc_py_watch *next, *prev; /* state->watches */
};

static void
report(PyObject *fn, const char *event, uint64_t ns)
{
    PyObject *result = PyObject_CallFunction(fn, "sK", event, (unsigned long long)ns);

    if (result == NULL) {
        PyErr_WriteUnraisable(fn);
    }
    Py_XDECREF(result);
}

/* To those that observe now: who comes meanwhile is told by tc_py_work_observe. */
static void
report_all(tc_py_watch *watch, const char *event, uint64_t ns)
{
    PyObject *type, *value, *trace, *fns;

    PyErr_Fetch(&type, &value, &trace);
    fns = PySequence_Tuple(watch->fns);
    for (Py_ssize_t i = 0; fns != NULL && i < PyTuple_Size(fns); i++) {
        report(PyTuple_GetItem(fns, i), event, ns);
    }
    if (fns == NULL) {
        PyErr_WriteUnraisable(NULL);
    }
    Py_XDECREF(fns);
    PyErr_Restore(type, value, trace);
}

static void
set_end(tc_py_watch *watch)
{
    (void)tc_cas_acq_rel_u64(&watch->end_ns, 0, tc_clock_wall_ns());
}

static void
report_end(tc_py_watch *watch)
{
    if (!watch->ended && !watch->later.state->silent) {
        watch->ended = true;
        report_all(watch, "end", tc_load_acquire_u64(&watch->end_ns));
    }
}

void
tc_py_watch_release(tc_py_watch *watch)
{
    if (--watch->refs == 0) {
        Py_DECREF(watch->fns);
        free(watch);
    }
}

static void
link_in(tc_py_watch *watch)
{
    tc_py_state *state = watch->later.state;

    watch->next = state->watches;
    if (watch->next != NULL) {
        watch->next->prev = watch;
    }
    tc_exchange_acq_rel_ptr(&state->watches, watch);
}

static void
link_out(tc_py_watch *watch)
{
    if (watch->next != NULL) {
        watch->next->prev = watch->prev;
    }
    if (watch->prev != NULL) {
        watch->prev->next = watch->next;
    } else {
        tc_exchange_acq_rel_ptr(&watch->later.state->watches, watch->next);
    }
}

/* Holding the GIL, some time after the end. */
static void
land(tc_py_later *later)
{
    tc_py_watch *watch = (tc_py_watch *)later;

    report_end(watch);
    link_out(watch);
    /* At exit it may be the last reference to a communicator without an engine. */
    if (!later->state->closed) {
        tc_work_release(watch->work);
    }
    tc_py_watch_release(watch);
}

/* On the thread that ends the work. */
static void
hear_of_end(void *ctx)
{
    tc_py_watch *watch = ctx;

    set_end(watch);
    tc_py_later_push(&watch->later);
}

/* For a work that has not ended. */
static void
take_off(tc_py_watch *watch, tc_work *work)
{
    tc_work_retain(work);
    watch->work = work;
    watch->refs++;
    watch->end = (tc_work_watch){hear_of_end, watch, NULL};
    link_in(watch);
    tc_work_on_end(work, &watch->end);
}

static tc_py_watch *
make_watch(tc_py_state *state, tc_py_work *self)
{
    tc_py_watch *watch = calloc(1, sizeof(*watch));
    PyObject *fns = PyList_New(0);

    if (watch == NULL || fns == NULL) {
        Py_XDECREF(fns);
        free(watch);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return NULL;
    }
    watch->later = (tc_py_later){NULL, state, land};
    watch->fns = fns;
    watch->refs = 1;
    watch->begin_ns = self->begin_ns != 0 ? self->begin_ns : tc_clock_wall_ns();
    watch->end_ns = self->end_ns;
    if (self->work != NULL) {
        take_off(watch, self->work);
    } else {
        set_end(watch);
        watch->ended = true;
    }
    return watch;
}

void
tc_py_watch_settle(tc_py_watch *watch)
{
    if (!watch->ended && tc_work_get_state(watch->work) != TC_WORK_INPROGRESS) {
        set_end(watch);
        report_end(watch);
    }
}

/* The start comes first whatever happens while it is reported. */
static bool
add_observer(tc_py_watch *watch, PyObject *fn)
{
    bool ended, added;

    watch->refs++;
    report(fn, "start", watch->begin_ns);
    ended = watch->ended;
    added = PyList_Append(watch->fns, fn) == 0;
    if (added && ended) {
        report(fn, "end", tc_load_acquire_u64(&watch->end_ns));
    } else if (added) {
        tc_py_watch_settle(watch);
    }
    tc_py_watch_release(watch);
    return added;
}

void
tc_py_watch_wait(tc_py_watch *watch)
{
    report_all(watch, "wait", tc_clock_wall_ns());
}

int
tc_py_watch_traverse(tc_py_watch *watch, visitproc visit, void *arg)
{
    /* Else the flight holds the list, too. */
    if (watch->refs == 1) {
        Py_VISIT(watch->fns);
    }
    return 0;
}

void
tc_py_work_set_times(PyObject *work, uint64_t begin_ns, uint64_t end_ns)
{
    ((tc_py_work *)work)->begin_ns = begin_ns;
    ((tc_py_work *)work)->end_ns = end_ns;
}

void
tc_py_work_waits(void *ctx, tc_work *work)
{
    tc_py_state *state = ctx;
    PyGILState_STATE gil;

    if (tc_load_acquire_ptr(&state->watches) == NULL) {
        return;
    }
    gil = PyGILState_Ensure();
    for (tc_py_watch *w = state->watches; w != NULL; w = w->next) {
        if (w->work == work) {
            /* What is told may let go of the watch. */
            w->refs++;
            tc_py_watch_wait(w);
            tc_py_watch_release(w);
            break;
        }
    }
    PyGILState_Release(gil);
}

const char tc_py_observe_doc[] =
    "_observe($self, fn, /)\n--\n\n"
    "Calls fn(event, time_ns) for \"start\", \"wait\" (somebody begins to wait) and\n"
    "\"end\"; what has already happened is reported at once. What it raises is\n"
    "reported as unraisable.";

PyObject *
tc_py_work_observe(PyObject *obj, PyObject *fn)
{
    tc_py_work *self = (tc_py_work *)obj;
    tc_py_state *state = tc_py_state_of(Py_TYPE(obj));

    if (!PyCallable_Check(fn)) {
        tc_py_refuse_type("fn", "callable", fn);
        return NULL;
    }
    if (!tc_py_check_process(self->generation, "_observe")) {
        return NULL;
    }
    /* That work is of all operations that had ended. */
    if (obj == state->done) {
        uint64_t now_ns = tc_clock_wall_ns();

        report(fn, "start", now_ns);
        report(fn, "end", now_ns);
        Py_RETURN_NONE;
    }
    if (self->watch == NULL) {
        self->watch = make_watch(state, self);
    }
    if (self->watch == NULL || !add_observer(self->watch, fn)) {
        return NULL;
    }
    Py_RETURN_NONE;
}
