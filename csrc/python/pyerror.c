/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a status of the core, or a foreign process, becomes a Python exception. */
#include <string.h>

#include "python/py.h"

PyObject *
tc_py_raise(tc_status status, const tc_error *err)
{
    PyObject *text;

    /* An interrupt's own exception, KeyboardInterrupt for one, goes through unchanged.
     */
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (status == TC_INTERRUPTED) {
        PyErr_SetString(PyExc_RuntimeError, "interrupted");
        return NULL;
    }
    text = PyUnicode_DecodeUTF8(err->message,
                                (Py_ssize_t)strnlen(err->message, sizeof(err->message)),
                                "replace");
    if (text != NULL) {
        PyErr_SetObject(PyExc_RuntimeError, text);
        Py_DECREF(text);
    }
    return NULL;
}

bool
tc_py_check_configured(const tc_comm *comm)
{
    tc_error err = {0};
    tc_status status;

    if (tc_comm_size(comm) > 0) {
        return true;
    }
    status = tc_comm_check_usable(comm, &err);
    if (status != TC_OK) {
        tc_py_raise(status, &err);
    }
    return status == TC_OK;
}

bool
tc_py_check_process(uint32_t generation, const char *call)
{
    if (generation == tc_py_generation()) {
        return true;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "%s in a forked child: only the process that made a communicator can "
                 "use it",
                 call);
    return false;
}
