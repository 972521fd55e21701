/* SPDX-License-Identifier: BSD-3-Clause */
/* Another metaclass for a class that exists. */
#ifndef TC_PYTHON_PYMETA_H
#define TC_PYTHON_PYMETA_H

#include "python/py.h"

/* torchcomms._core._set_metaclass(cls, meta) */
PyObject *
tc_py_set_metaclass(PyObject *module, PyObject *args);

#endif
