/* SPDX-License-Identifier: BSD-3-Clause */
/* Python functions as hooks of a communicator: registered, called, collected. */
#include "python/pyhook.h"

#include "base/clock.h"

/* The arguments are made for the first hook of an event and shared by all. */
static PyObject *
pre_args(tc_py_state *state, const tc_hook_event *event)
{
    tc_py_subject *subject = event->face;

    if (subject->args == NULL) {
        subject->args = tc_py_pre_args_make(state, event);
    }
    return subject->args;
}

/* The face that issued may have no TorchWork. */
static bool
need_work(tc_py_state *state, const tc_hook_event *event)
{
    tc_py_subject *subject = event->face;

    if (subject->work != NULL || event->call == NULL) {
        return true;
    }
    if (event->work != NULL) {
        tc_work_retain(event->work);
    }
    subject->work = tc_py_work_wrap(state, event->work);
    if (subject->work != NULL) {
        tc_py_work_set_times(subject->work, event->begin_ns,
                             event->work == NULL ? tc_clock_wall_ns() : 0);
    }
    return subject->work != NULL;
}

static PyObject *
post_args(tc_py_state *state, const tc_hook_event *event)
{
    tc_py_subject *subject = event->face;
    PyObject *child = NULL;

    if (subject->args != NULL) {
        return subject->args;
    }
    if (!need_work(state, event)) {
        return NULL;
    }
    if (event->child != NULL) {
        tc_comm_retain(event->child);
        child = tc_py_comm_wrap(state, event->child);
        if (child == NULL) {
            return NULL;
        }
    }
    subject->args = tc_py_post_args_make(state, event->kind, subject->work, child);
    Py_XDECREF(child);
    return subject->args;
}

/* False with the callback's exception. */
static bool
call_back(tc_py_state *state, PyObject *callback, tc_hook_point point,
          const tc_hook_event *event)
{
    PyObject *args =
        point == TC_HOOK_PRE ? pre_args(state, event) : post_args(state, event);
    PyObject *id = args != NULL ? PyLong_FromUnsignedLongLong(event->op_id) : NULL;
    PyObject *result = NULL;

    if (id != NULL && point == TC_HOOK_PRE) {
        result = PyObject_CallFunctionObjArgs(callback, state->op_names[event->kind],
                                              id, args, NULL);
    } else if (id != NULL) {
        result = PyObject_CallFunctionObjArgs(callback, id, args, NULL);
    }
    Py_XDECREF(result);
    Py_XDECREF(id);
    return result != NULL;
}

/* The error of the operation is on its way to the caller, whatever happens here. */
static void
call_abort(PyObject *callback)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace, *result;

    PyErr_Fetch(&type, &value, &trace);
    result = PyObject_CallFunctionObjArgs(callback, NULL);
    if (result == NULL) {
        PyErr_WriteUnraisable(callback);
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}

static tc_status
run_hook(void *ctx, tc_hook_point point, tc_hook_event *event, tc_error *Py_UNUSED(err))
{
    tc_py_owner *owner = ctx;
    tc_py_state *state = tc_py_owner_state(owner);

    /* The interpreter ends. */
    if (state->closed || !Py_IsInitialized()) {
        return TC_OK;
    }
    if (point == TC_HOOK_ABORT) {
        call_abort(tc_py_owner_object(owner));
        return TC_OK;
    }
    return call_back(state, tc_py_owner_object(owner), point, event) ? TC_OK
                                                                     : TC_INTERRUPTED;
}

tc_status
tc_py_hooks_begin(tc_comm *comm, tc_hook_event *event, tc_error *err)
{
    tc_py_subject *subject = event->face;
    tc_status status = tc_hooks_begin(comm, event, err);

    Py_CLEAR(subject->args);
    return status;
}

tc_status
tc_py_hooks_end(tc_comm *comm, tc_hook_event *event, tc_error *err)
{
    tc_py_subject *subject = event->face;
    tc_status status = tc_hooks_end(comm, event, err);

    Py_CLEAR(subject->args);
    Py_CLEAR(subject->work);
    return status;
}

PyObject *
tc_py_hooks_finish(tc_py_state *state, tc_comm *comm, tc_hook_event *event,
                   PyObject *result)
{
    tc_py_subject *subject = event->face;
    tc_error err = {0};
    tc_status status;

    /* Each operation has a work of its own where somebody may observe it. */
    if (result == state->done) {
        Py_DECREF(result);
        result = tc_py_work_wrap(state, NULL);
    }
    if (result == NULL) {
        return NULL;
    }
    event->work = ((tc_py_work *)result)->work;
    tc_py_work_set_times(result, event->begin_ns,
                         event->work == NULL ? tc_clock_wall_ns() : 0);
    subject->work = Py_NewRef(result);
    status = tc_py_hooks_end(comm, event, &err);
    if (status != TC_OK) {
        Py_DECREF(result);
        return tc_py_raise(status, &err);
    }
    return result;
}

typedef struct visitor {
    visitproc visit;
    void *arg;
} visitor;

static int
visit_callback(void *ctx, void *arg)
{
    visitor *v = arg;

    return v->visit(tc_py_owner_object(ctx), v->arg);
}

int
tc_py_hooks_traverse(const tc_comm *comm, visitproc visit, void *arg)
{
    visitor v = {visit, arg};

    return tc_hooks_visit(comm, run_hook, visit_callback, &v);
}

static PyObject *
register_hook(const tc_py_params *params, tc_hook_point point, PyObject *self,
              PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    tc_py_state *state = tc_py_state_of(cls);
    PyObject *slots[TC_PY_MAX_PARAMS];
    tc_py_owner *owner;
    tc_hook *hook;
    tc_error err;
    tc_status status;

    if (!tc_py_bind(state, params, args, nargs, kwnames, slots) ||
        !tc_py_check_process(((tc_py_comm *)self)->generation, params->method)) {
        return NULL;
    }
    if (!PyCallable_Check(slots[0])) {
        tc_py_refuse_type("callback", "callable", slots[0]);
        return NULL;
    }
    owner = tc_py_owner_make(state, slots[0]);
    if (owner == NULL) {
        return PyErr_NoMemory();
    }
    status = tc_hook_add(((tc_py_comm *)self)->comm, point, run_hook,
                         (tc_owner){owner, tc_py_owner_release}, &hook, &err);
    if (status != TC_OK) {
        tc_py_owner_release(owner);
        return tc_py_raise(status, &err);
    }
    return tc_py_handle_make(state, hook);
}

const char tc_py_register_pre_hook_doc[] =
    "register_pre_hook($self, /, callback)\n--\n\n"
    "Calls callback(name, op_id, args) before each operation, after its checks.\n\n"
    "name is an OpName, args an object of the operation's PreHookArgs class. What it\n"
    "raises reaches the caller, and the operation is not done. Returns a\n"
    "RemovableHandle.";

PyObject *
tc_py_comm_register_pre_hook(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"register_pre_hook", 1, {TC_PY_callback}};

    return register_hook(&params, TC_HOOK_PRE, self, cls, args, nargs, kwnames);
}

const char tc_py_register_post_hook_doc[] =
    "register_post_hook($self, /, callback)\n--\n\n"
    "Calls callback(op_id, args) after each operation was started.\n\n"
    "op_id is that of the pre-hooks, args an object of the operation's PostHookArgs\n"
    "class. An asynchronous operation need not have ended. Not called where the\n"
    "operation raises. Returns a RemovableHandle.";

PyObject *
tc_py_comm_register_post_hook(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"register_post_hook", 1, {TC_PY_callback}};

    return register_hook(&params, TC_HOOK_POST, self, cls, args, nargs, kwnames);
}

const char tc_py_register_abort_hook_doc[] =
    "register_abort_hook($self, /, callback)\n--\n\n"
    "Calls callback() when an operation has failed, before its error is raised.\n\n"
    "What it raises is reported as unraisable and goes no further. Returns a\n"
    "RemovableHandle.";

PyObject *
tc_py_comm_register_abort_hook(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"register_abort_hook", 1, {TC_PY_callback}};

    return register_hook(&params, TC_HOOK_ABORT, self, cls, args, nargs, kwnames);
}
