/* SPDX-License-Identifier: BSD-3-Clause */
/* TorchComm's init handle, reconfigure and hints. */
#include "python/pyreconfigure.h"

#include <stdlib.h>
#include <string.h>

#include "core/reconfigure.h"
#include "python/pyargs.h"

static tc_comm *
comm_of(PyObject *obj)
{
    return ((tc_py_comm *)obj)->comm;
}

/* The handles of one call; `texts` points into the strings of `tuple`. */
typedef struct handles {
    PyObject *tuple;
    const char **texts;
} handles;

static bool
read_uuid(PyObject *obj, uint64_t *uuid_p)
{
    PyObject *number = PyNumber_Index(obj);

    if (number == NULL) {
        PyErr_Clear();
        return tc_py_refuse_type("uuid", "an int", obj);
    }
    *uuid_p = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_RuntimeError, "uuid must be in range [0, 2**64), but got %S",
                     obj);
        return false;
    }
    return true;
}

static bool
read_text(PyObject *obj, Py_ssize_t i, const char **text_p)
{
    Py_ssize_t bytes = 0;

    if (!PyUnicode_Check(obj)) {
        return tc_py_refuse_type("an element of init_handles", "a str", obj);
    }
    *text_p = PyUnicode_AsUTF8AndSize(obj, &bytes);
    if (*text_p != NULL && strlen(*text_p) != (size_t)bytes) {
        PyErr_Format(PyExc_RuntimeError, "init_handles[%zd] %R has a null character", i,
                     obj);
        return false;
    }
    return *text_p != NULL;
}

static void
drop_handles(handles *h)
{
    free(h->texts);
    Py_XDECREF(h->tuple);
}

/* A list gives the ranks, a set does not. */
static bool
read_handles(PyObject *obj, handles *h_p, tc_reconfigure_options *options)
{
    Py_ssize_t n;

    options->ordered = PyList_Check(obj) || PyTuple_Check(obj);
    if (!options->ordered && !PyAnySet_Check(obj)) {
        return tc_py_refuse_type("init_handles", "a list or a set of str", obj);
    }
    h_p->tuple = PySequence_Tuple(obj);
    n = h_p->tuple != NULL ? PyTuple_Size(h_p->tuple) : 0;
    if (n > INT32_MAX) {
        PyErr_Format(PyExc_RuntimeError, "init_handles has %zd entries", n);
        return false;
    }
    h_p->texts = malloc(((size_t)n + 1) * sizeof(h_p->texts[0]));
    if (h_p->tuple == NULL || h_p->texts == NULL) {
        if (h_p->tuple != NULL) {
            PyErr_NoMemory();
        }
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!read_text(PyTuple_GetItem(h_p->tuple, i), i, &h_p->texts[i])) {
            return false;
        }
    }
    options->handles = h_p->texts;
    options->count = (int32_t)n;
    return true;
}

static PyObject *
reconfigure(tc_py_state *state, tc_comm *comm, tc_reconfigure_options *options)
{
    tc_py_pause pause;
    tc_error err = {0};
    tc_status status;

    options->interrupt = tc_py_pause_begin(&pause);
    status = tc_comm_reconfigure(comm, options, &err);
    tc_py_pause_end(&pause);
    tc_py_garbage_check(state);
    if (status != TC_OK || PyErr_Occurred()) {
        return tc_py_raise(status, &err);
    }
    return tc_py_work_wrap(state, NULL);
}

const char tc_py_reconfigure_doc[] =
    "reconfigure($self, /, uuid, init_handles, timeout=None, hints=None)\n--\n\n"
    "Gives the communicator the ranks that own init_handles; each of them calls\n"
    "it with the same arguments. In a list the places are the ranks, a set is\n"
    "ordered by the backend. uuid is new for each membership. Waits for the\n"
    "others and returns a work that is complete. Operations of the membership\n"
    "before it fail. After a failure, unless that is a bad argument, the\n"
    "communicator has no ranks until a later reconfigure().";

PyObject *
tc_py_comm_reconfigure(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {
        "reconfigure", 2, {TC_PY_uuid, TC_PY_init_handles, TC_PY_timeout, TC_PY_hints}};
    tc_py_state *state = tc_py_state_of(cls);
    PyObject *slots[TC_PY_MAX_PARAMS];
    tc_reconfigure_options options = {0};
    handles h = {0};
    tc_hint *hints = NULL;
    PyObject *work = NULL;

    if (!tc_py_bind(state, &params, args, nargs, kwnames, slots) ||
        !tc_py_check_process(((tc_py_comm *)self)->generation, "reconfigure") ||
        !read_uuid(slots[0], &options.uuid) ||
        !tc_py_to_timeout(state, slots[2], &options.timeout_ns)) {
        return NULL;
    }
    if (read_handles(slots[1], &h, &options) &&
        tc_py_to_hints(slots[3], &hints, &options.hint_count)) {
        options.hints = hints;
        work = reconfigure(state, comm_of(self), &options);
    }
    free(hints);
    drop_handles(&h);
    return work;
}

const char tc_py_get_init_handle_doc[] =
    "get_init_handle($self, /)\n--\n\n"
    "The text by which others reach this communicator in reconfigure(): its\n"
    "own, and the same for its whole life.";

PyObject *
tc_py_comm_get_init_handle(PyObject *self, PyObject *Py_UNUSED(none))
{
    const char *handle;
    tc_error err = {0};
    tc_status status;

    if (!tc_py_check_process(((tc_py_comm *)self)->generation, "get_init_handle")) {
        return NULL;
    }
    status = tc_comm_init_handle(comm_of(self), &handle, &err);
    return status == TC_OK ? PyUnicode_FromString(handle) : tc_py_raise(status, &err);
}

const char tc_py_set_hints_doc[] =
    "set_hints($self, /, hints)\n--\n\n"
    "The hints of later memberships and children, in place of those before.";

PyObject *
tc_py_comm_set_hints(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                     Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"set_hints", 1, {TC_PY_hints}};
    PyObject *slots[TC_PY_MAX_PARAMS];
    tc_hint *hints = NULL;
    size_t count;
    tc_error err = {0};
    tc_status status;

    if (!tc_py_bind(tc_py_state_of(cls), &params, args, nargs, kwnames, slots) ||
        !tc_py_to_hints(slots[0], &hints, &count)) {
        return NULL;
    }
    status = tc_comm_set_hints(comm_of(self), hints, count, &err);
    free(hints);
    return status == TC_OK ? Py_NewRef(Py_None) : tc_py_raise(status, &err);
}
