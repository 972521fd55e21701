/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms.TorchWork: one issued operation. */
#include "python/pyhook.h"

PyObject *
tc_py_work_wrap(tc_py_state *state, tc_work *work)
{
    tc_py_work *self = PyObject_GC_New(tc_py_work, state->work_type);

    if (self == NULL) {
        if (work != NULL) {
            tc_work_release(work);
        }
        return NULL;
    }
    self->weakrefs = NULL;
    self->work = work;
    self->watch = NULL;
    self->begin_ns = self->end_ns = 0;
    self->generation = tc_py_generation();
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Without a clear: the list of functions breaks every cycle that goes through it. */
static int
work_traverse(PyObject *obj, visitproc visit, void *arg)
{
    tc_py_watch *watch = ((tc_py_work *)obj)->watch;

    Py_VISIT(Py_TYPE(obj));
    return watch != NULL ? tc_py_watch_traverse(watch, visit, arg) : 0;
}

static void
work_dealloc(PyObject *obj)
{
    tc_py_work *self = (tc_py_work *)obj;
    PyTypeObject *type = Py_TYPE(obj);
    tc_py_state *state = tc_py_state_at_end(type);
    tc_work *work = self->work;

    PyObject_GC_UnTrack(obj);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(obj);
    }
    /* After the exit function the engine is gone, which its communicator needs. */
    if (work != NULL && state != NULL && !state->closed &&
        self->generation == tc_py_generation()) {
        tc_work_release(work);
        tc_py_garbage_check(state);
    }
    if (self->watch != NULL) {
        tc_py_watch_release(self->watch);
    }
    PyObject_GC_Del(obj);
    Py_DECREF(type);
}

/* Of `work`, if it has ended: what hooks and observers are told. */
static void
see_end(tc_py_work *self, tc_work *work)
{
    tc_hooks_work_ended(work);
    if (self->watch != NULL) {
        tc_py_watch_settle(self->watch);
    }
}

PyDoc_STRVAR(
    wait_doc,
    "wait($self, /)\n--\n\n"
    "Blocks until the operation has ended and raises its error, a RuntimeError.\n"
    "May be called any number of times.");

static PyObject *
work_wait(PyObject *obj, PyObject *Py_UNUSED(none))
{
    tc_py_work *self = (tc_py_work *)obj;
    tc_py_state *state = tc_py_state_of(Py_TYPE(obj));
    tc_work *work = self->work;
    tc_error err = {0};
    tc_status status;

    if (self->watch != NULL) {
        tc_py_watch_wait(self->watch);
        work = self->work;
    }
    if (work == NULL) {
        Py_RETURN_NONE;
    }
    if (!tc_py_check_process(self->generation, "wait")) {
        return NULL;
    }
    /* Another thread may come to the end first and let go. */
    tc_work_retain(work);
    status = tc_py_wait_work(work, &err);
    if (status == TC_OK && self->work == work) {
        self->work = NULL;
        tc_work_release(work);
    }
    see_end(self, work);
    tc_work_release(work);
    tc_py_garbage_check(state);
    if (status != TC_OK) {
        return tc_py_raise(status, &err);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    wait_blocking_doc,
    "wait_blocking($self, /)\n--\n\n"
    "Blocks the calling thread until the operation has ended; on a CPU device\n"
    "the same as wait(). Asynchronous works of the backend gloo refuse it.");

static PyObject *
work_wait_blocking(PyObject *obj, PyObject *none)
{
    tc_work *work = ((tc_py_work *)obj)->work;

    if (work != NULL &&
        (tc_work_backend_flags(work) & TC_BACKEND_NO_WAIT_BLOCKING) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "waitBlocking not implemented");
        return NULL;
    }
    return work_wait(obj, none);
}

PyDoc_STRVAR(is_completed_doc,
             "is_completed($self, /)\n--\n\n"
             "Whether the operation has ended without an error. Does not block.");

static PyObject *
work_is_completed(PyObject *obj, PyObject *Py_UNUSED(none))
{
    tc_py_work *self = (tc_py_work *)obj;
    tc_work *work = self->work;
    bool completed;

    if (work == NULL) {
        Py_RETURN_TRUE;
    }
    completed = tc_work_get_state(work) == TC_WORK_COMPLETED;
    /* What is told may let go of it. */
    if (self->generation == tc_py_generation()) {
        tc_work_retain(work);
        see_end(self, work);
        tc_work_release(work);
    }
    return PyBool_FromLong(completed);
}

PyDoc_STRVAR(set_status_doc,
             "_set_status($self, status, /)\n--\n\n"
             "For the works of backends that are written in Python; raises on others.");

static PyObject *
work_set_status(PyObject *Py_UNUSED(obj), PyObject *Py_UNUSED(status))
{
    PyErr_SetString(
        PyExc_RuntimeError,
        "only the work of a backend written in Python can be told its status");
    return NULL;
}

static PyMethodDef methods[] = {
    {"wait", work_wait, METH_NOARGS, wait_doc},
    {"wait_blocking", work_wait_blocking, METH_NOARGS, wait_blocking_doc},
    {"is_completed", work_is_completed, METH_NOARGS, is_completed_doc},
    {"_set_status", work_set_status, METH_O, set_status_doc},
    {"_observe", tc_py_work_observe, METH_O, tc_py_observe_doc},
    {0},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tc_py_work, weakrefs), READONLY, NULL},
    {0},
};

PyDoc_STRVAR(work_doc,
             "One issued operation; every collective returns one. It keeps the "
             "tensors of the\noperation alive and may be dropped at any time.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)work_doc},   {Py_tp_dealloc, work_dealloc},
    {Py_tp_traverse, work_traverse}, {Py_tp_methods, methods},
    {Py_tp_members, members},        {0, NULL},
};

PyType_Spec tc_py_work_spec = {
    .name = "torchcomms.TorchWork",
    .basicsize = sizeof(tc_py_work),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
