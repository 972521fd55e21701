/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments by table: sorting a vectorcall into slots, and converting single values. */
#include "python/pyargs.h"

#include <stdlib.h>

#include "base/clock.h"

const char *const tc_py_name_texts[TC_PY_NAME_COUNT] = {"",
#define NAME_TEXT(name) #name,
                                                        TC_PY_NAMES(NAME_TEXT)
#undef NAME_TEXT
};

const char *
tc_py_param_text(const tc_py_params *params, int i)
{
    return tc_py_name_texts[params->names[i]];
}

static int
count_params(const tc_py_params *params)
{
    int n = 0;

    while (n < TC_PY_MAX_PARAMS && params->names[n] != TC_PY_NO_NAME) {
        n++;
    }
    return n;
}

/* The place of a keyword, or -1. Callers' names are nearly always interned too. */
static int
find_param(tc_py_state *state, const tc_py_params *params, int count, PyObject *keyword)
{
    for (int i = 0; i < count; i++) {
        if (keyword == state->names[params->names[i]]) {
            return i;
        }
    }
    for (int i = 0; i < count; i++) {
        if (PyUnicode_CompareWithASCIIString(keyword,
                                             tc_py_name_texts[params->names[i]]) == 0) {
            return i;
        }
    }
    return -1;
}

static bool
bind_keywords(tc_py_state *state, const tc_py_params *params, int count,
              PyObject *const *values, PyObject *kwnames, PyObject **slots)
{
    Py_ssize_t n = PyTuple_Size(kwnames);

    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *keyword = PyTuple_GetItem(kwnames, k);
        int i = find_param(state, params, count, keyword);

        if (i < 0) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got an unexpected keyword argument '%U'", params->method,
                         keyword);
            return false;
        }
        if (slots[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
                         params->method, keyword);
            return false;
        }
        slots[i] = values[k];
    }
    return true;
}

bool
tc_py_bind(tc_py_state *state, const tc_py_params *params, PyObject *const *args,
           Py_ssize_t nargs, PyObject *kwnames, PyObject **slots)
{
    int count = count_params(params);

    if (nargs > count) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes at most %d positional arguments (%zd given)",
                     params->method, count, nargs);
        return false;
    }
    for (int i = 0; i < count; i++) {
        slots[i] = i < nargs ? args[i] : NULL;
    }
    if (kwnames != NULL &&
        !bind_keywords(state, params, count, args + nargs, kwnames, slots)) {
        return false;
    }
    for (int i = 0; i < params->required; i++) {
        if (slots[i] == NULL) {
            PyErr_Format(PyExc_TypeError,
                         "%s() missing required argument '%s' (pos %d)", params->method,
                         tc_py_name_texts[params->names[i]], i + 1);
            return false;
        }
    }
    return true;
}

bool
tc_py_refuse_type(const char *name, const char *wanted, PyObject *obj)
{
    PyObject *type_name = PyObject_GetAttrString((PyObject *)Py_TYPE(obj), "__name__");

    if (type_name != NULL) {
        PyErr_Format(PyExc_TypeError, "%s must be %s, but got %S", name, wanted,
                     type_name);
        Py_DECREF(type_name);
    }
    return false;
}

bool
tc_py_to_bool(PyObject *obj, const char *name, bool *value_p)
{
    if (obj == NULL || obj == Py_False) {
        *value_p = false;
        return true;
    }
    if (obj == Py_True) {
        *value_p = true;
        return true;
    }
    return tc_py_refuse_type(name, "a bool", obj);
}

bool
tc_py_to_int(PyObject *obj, const char *name, long long *value_p)
{
    int overflow;
    PyObject *number;

    if (!PyIndex_Check(obj)) {
        return tc_py_refuse_type(name, "an int", obj);
    }
    number = PyNumber_Index(obj);
    if (number == NULL) {
        return false;
    }
    *value_p = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow != 0) {
        PyErr_Format(PyExc_OverflowError, "%s does not fit 64 bits: %S", name, obj);
        return false;
    }
    return *value_p != -1 || !PyErr_Occurred();
}

bool
tc_py_to_rank(PyObject *obj, const char *name, int32_t size, int32_t *rank_p)
{
    long long value;

    if (!tc_py_to_int(obj, name, &value)) {
        return false;
    }
    if (value < 0 || value >= size) {
        PyErr_Format(PyExc_RuntimeError, "%s must be in range [0, %d), but got %lld",
                     name, size, value);
        return false;
    }
    *rank_p = (int32_t)value;
    return true;
}

static bool
timedelta_part(tc_py_state *state, PyObject *obj, tc_py_name name, long long *value_p)
{
    PyObject *part = PyObject_GetAttr(obj, state->names[name]);

    if (part == NULL) {
        return false;
    }
    *value_p = PyLong_AsLongLong(part);
    Py_DECREF(part);
    return *value_p != -1 || !PyErr_Occurred();
}

bool
tc_py_to_timeout(tc_py_state *state, PyObject *obj, uint64_t *ns_p)
{
    const long long max_days = (long long)(UINT64_MAX / TC_NSEC_PER_SEC / 86400) - 1;
    long long days, seconds, microseconds;
    int is;

    *ns_p = 0;
    if (obj == NULL || obj == Py_None) {
        return true;
    }
    is = PyObject_IsInstance(obj, state->timedelta);
    if (is < 0) {
        return false;
    }
    if (is == 0) {
        return tc_py_refuse_type("timeout", "a datetime.timedelta or None", obj);
    }
    if (!timedelta_part(state, obj, TC_PY_days, &days) ||
        !timedelta_part(state, obj, TC_PY_seconds, &seconds) ||
        !timedelta_part(state, obj, TC_PY_microseconds, &microseconds)) {
        return false;
    }
    if (days < 0) {
        PyErr_Format(PyExc_RuntimeError, "timeout must not be negative, but got %S",
                     obj);
        return false;
    }
    days = days < max_days ? days : max_days;
    *ns_p = ((uint64_t)days * 86400 + (uint64_t)seconds) * TC_NSEC_PER_SEC +
            (uint64_t)microseconds * 1000;
    return true;
}

PyObject *
tc_py_from_timeout(tc_py_state *state, uint64_t ns)
{
    return PyObject_CallFunction(state->timedelta, "iKK", 0,
                                 (unsigned long long)(ns / TC_NSEC_PER_SEC),
                                 (unsigned long long)(ns % TC_NSEC_PER_SEC / 1000));
}

static bool
check_hint(PyObject *key, PyObject *value)
{
    if (!PyUnicode_Check(key)) {
        return tc_py_refuse_type("a key of hints", "a str", key);
    }
    if (!PyUnicode_Check(value)) {
        return tc_py_refuse_type("a value of hints", "a str", value);
    }
    return true;
}

bool
tc_py_check_hints(PyObject *obj)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;

    if (obj == NULL || obj == Py_None) {
        return true;
    }
    if (!PyDict_Check(obj)) {
        return tc_py_refuse_type("hints", "a dict of str or None", obj);
    }
    while (PyDict_Next(obj, &at, &key, &value)) {
        if (!check_hint(key, value)) {
            return false;
        }
    }
    return true;
}

bool
tc_py_to_hints(PyObject *obj, tc_hint **hints_p, size_t *count_p)
{
    Py_ssize_t at = 0;
    size_t n = 0;
    PyObject *key, *value;
    tc_hint *hints;

    *hints_p = NULL;
    *count_p = 0;
    if (!tc_py_check_hints(obj)) {
        return false;
    }
    if (obj == NULL || obj == Py_None || PyDict_Size(obj) == 0) {
        return true;
    }
    hints = calloc((size_t)PyDict_Size(obj), sizeof(hints[0]));
    if (hints == NULL) {
        PyErr_NoMemory();
        return false;
    }
    while (PyDict_Next(obj, &at, &key, &value)) {
        hints[n].key = PyUnicode_AsUTF8AndSize(key, NULL);
        hints[n].value = PyUnicode_AsUTF8AndSize(value, NULL);
        if (hints[n].key == NULL || hints[n].value == NULL) {
            free(hints);
            return false;
        }
        n++;
    }
    *hints_p = hints;
    *count_p = n;
    return true;
}
