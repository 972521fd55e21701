/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of TorchComm that a backend need not have. */
#ifndef TC_PYTHON_PYOPTIONAL_H
#define TC_PYTHON_PYOPTIONAL_H

#include "python/py.h"

/* Rows of the method table of TorchComm: X(name). */
#define TC_PY_OPTIONAL(X) \
    X(tensor_register) \
    X(tensor_deregister) \
    X(get_device_transport) \
    X(all_gather_p_init) \
    X(all_gather_p_exec) \
    X(all_gather_p_free) \
    X(new_window) \
    X(get_backend_impl) \
    X(unsafe_get_backend)

#define TC_PY_OPTIONAL_DECLARE(name) \
    PyObject *tc_py_optional_##name(PyObject *obj, PyTypeObject *cls, \
                                    PyObject *const *args, Py_ssize_t nargs, \
                                    PyObject *kwnames); \
    extern const char tc_py_optional_##name##_doc[];
TC_PY_OPTIONAL(TC_PY_OPTIONAL_DECLARE)
#undef TC_PY_OPTIONAL_DECLARE

/* RuntimeError "<operation> not implemented for communicator:<name>"; NULL. The
 * operation is written as in the contract, in C++ spelling. */
PyObject *
tc_py_refuse_operation(PyObject *comm, const char *operation);

#endif
