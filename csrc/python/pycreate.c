/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a communicator, with a Python object as the store of its start-up. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/registry.h"
#include "python/pyargs.h"

/* Turns a Python exception into an error of the core; Ctrl-C and the like stay set and
 * reach the caller unchanged. */
static tc_status
store_failed(tc_error *err)
{
    PyObject *type, *value, *trace, *text;
    const char *utf8;
    tc_status status;

    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return TC_INTERRUPTED;
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    text = value != NULL ? PyObject_Str(value) : NULL;
    utf8 = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    status =
        tc_error_set(err, TC_ERR_STORE, "%s", utf8 != NULL ? utf8 : "store failed");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return status;
}

/* The callbacks' ctx is the adapter of torchcomms._store; none of them holds the GIL
 * when it is called. */
static tc_status
store_set(void *ctx, const char *key, const void *value, size_t bytes, tc_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    tc_status status = TC_INTERRUPTED;

    if (!PyErr_Occurred()) {
        PyObject *none =
            PyObject_CallMethod(ctx, "set", "sy#", key, value, (Py_ssize_t)bytes);

        status = none != NULL ? TC_OK : store_failed(err);
        Py_XDECREF(none);
    }
    PyGILState_Release(gil);
    return status;
}

static tc_status
copy_value(PyObject *obj, const char *key, void *value, size_t capacity,
           size_t *bytes_p, tc_error *err)
{
    char *data;
    Py_ssize_t bytes;

    if (PyBytes_AsStringAndSize(obj, &data, &bytes) != 0) {
        return store_failed(err);
    }
    if ((size_t)bytes > capacity) {
        return tc_error_set(err, TC_ERR_STORE,
                            "store: key '%s' has %zd bytes, at most %zu are expected",
                            key, bytes, capacity);
    }
    memcpy(value, data, (size_t)bytes);
    *bytes_p = (size_t)bytes;
    return TC_OK;
}

static tc_status
store_get(void *ctx, const char *key, uint64_t timeout_ns, void *value, size_t capacity,
          size_t *bytes_p, tc_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    tc_status status = TC_INTERRUPTED;

    if (!PyErr_Occurred()) {
        PyObject *obj = PyObject_CallMethod(ctx, "get", "sd", key,
                                            (double)timeout_ns / TC_NSEC_PER_SEC);

        status = obj != NULL ? copy_value(obj, key, value, capacity, bytes_p, err)
                             : store_failed(err);
        Py_XDECREF(obj);
    }
    PyGILState_Release(gil);
    return status;
}

static tc_status
store_add(void *ctx, const char *key, int64_t amount, int64_t *sum_p, tc_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    tc_status status = TC_INTERRUPTED;

    if (!PyErr_Occurred()) {
        PyObject *sum = PyObject_CallMethod(ctx, "add", "sL", key, (long long)amount);
        long long number = sum != NULL ? PyLong_AsLongLong(sum) : -1;

        if (number == -1 && PyErr_Occurred()) {
            status = store_failed(err);
        } else {
            status = TC_OK;
            *sum_p = number;
        }
        Py_XDECREF(sum);
    }
    PyGILState_Release(gil);
    return status;
}

PyObject *
tc_py_store_object(const tc_store *store)
{
    return store->set == store_set ? store->ctx : NULL;
}

enum {
    BACKEND,
    NAME,
    DEVICE_TYPE,
    DEVICE_INDEX,
    RANK,
    SIZE,
    TIMEOUT,
    ABORT_PROCESS,
    STORE,
    HINTS,
    RECONFIGURABLE,
};

static bool
read_text(PyObject *obj, const char *name, const char **text_p)
{
    if (!PyUnicode_Check(obj)) {
        return tc_py_refuse_type(name, "a str", obj);
    }
    *text_p = PyUnicode_AsUTF8AndSize(obj, NULL);
    return *text_p != NULL;
}

static bool
read_int32(PyObject *obj, const char *name, int32_t *value_p)
{
    long long value;

    if (!tc_py_to_int(obj, name, &value)) {
        return false;
    }
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s does not fit 32 bits: %lld", name, value);
        return false;
    }
    *value_p = (int32_t)value;
    return true;
}

static PyObject *
create(tc_py_state *state, tc_comm_options *options)
{
    tc_engine *engine;
    tc_comm *comm = NULL;
    tc_py_pause pause;
    tc_error err = {0};
    tc_status status = tc_py_engine(state, &engine, &err);

    if (status != TC_OK) {
        return tc_py_raise(status, &err);
    }
    options->interrupt = tc_py_pause_begin(&pause);
    status = tc_comm_create(options, engine, &comm, &err);
    tc_py_pause_end(&pause);
    if (status != TC_OK || PyErr_Occurred()) {
        if (status == TC_OK) {
            tc_py_comm_leave(state, comm);
        }
        return tc_py_raise(status, &err);
    }
    return tc_py_comm_wrap(state, comm);
}

PyObject *
tc_py_new_comm(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const tc_py_params params = {
        "_new_comm",
        10,
        {TC_PY_backend, TC_PY_name, TC_PY_device_type, TC_PY_device_index, TC_PY_rank,
         TC_PY_size, TC_PY_timeout, TC_PY_abort_process, TC_PY_store, TC_PY_hints,
         TC_PY_enable_reconfigure}};
    tc_py_state *state = PyModule_GetState(module);
    PyObject *slots[TC_PY_MAX_PARAMS];
    tc_comm_options options = {0};
    tc_store store = {NULL, store_set, store_get, store_add};
    tc_hint *hints = NULL;
    PyObject *comm = NULL;

    tc_py_garbage_check(state);
    if (!tc_py_bind(state, &params, args, nargs, kwnames, slots) ||
        !read_text(slots[BACKEND], "backend", &options.backend) ||
        !read_text(slots[NAME], "name", &options.name) ||
        !tc_py_to_device(slots[DEVICE_TYPE], slots[DEVICE_INDEX], &options.device) ||
        !read_int32(slots[RANK], "rank", &options.rank) ||
        !read_int32(slots[SIZE], "size", &options.size) ||
        !tc_py_to_timeout(state, slots[TIMEOUT], &options.timeout_ns) ||
        !tc_py_to_bool(slots[ABORT_PROCESS], "abort_process", &options.abort_process) ||
        !tc_py_to_bool(slots[RECONFIGURABLE], "enable_reconfigure",
                       &options.reconfigurable)) {
        return NULL;
    }
    if (options.timeout_ns == 0) {
        return PyErr_Format(PyExc_RuntimeError, "timeout must be positive, but got %S",
                            slots[TIMEOUT]);
    }
    if (slots[STORE] != Py_None) {
        store.ctx = slots[STORE];
        options.store = &store;
    }
    if (tc_py_to_hints(slots[HINTS], &hints, &options.hint_count)) {
        options.hints = hints;
        comm = create(state, &options);
    }
    free(hints);
    return comm;
}
