/* SPDX-License-Identifier: BSD-3-Clause */
/* TorchComm's methods of reconfigure, for its table. */
#ifndef TC_PYTHON_PYRECONFIGURE_H
#define TC_PYTHON_PYRECONFIGURE_H

#include "python/py.h"

PyObject *
tc_py_comm_get_init_handle(PyObject *self, PyObject *none);

PyObject *
tc_py_comm_reconfigure(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *kwnames);

PyObject *
tc_py_comm_set_hints(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                     Py_ssize_t nargs, PyObject *kwnames);

extern const char tc_py_get_init_handle_doc[];
extern const char tc_py_reconfigure_doc[];
extern const char tc_py_set_hints_doc[];

#endif
