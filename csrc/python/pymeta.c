/* SPDX-License-Identifier: BSD-3-Clause */
/* Another metaclass for a class that exists: torchcomms._core._set_metaclass. */
#include "python/pymeta.h"

/* -1 with an exception. */
static Py_ssize_t
size_attribute(PyObject *type, const char *name)
{
    PyObject *number = PyObject_GetAttrString(type, name);
    Py_ssize_t size = number != NULL ? PyLong_AsSsize_t(number) : -1;

    Py_XDECREF(number);
    return size;
}

/* Whether classes of `meta` are laid out like those of `type`, so that one may become
 * the other. 1, 0, or -1 with an exception. */
static int
is_laid_out_like_type(PyObject *meta)
{
    static const char *const names[] = {"__basicsize__", "__itemsize__"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        Py_ssize_t size = size_attribute(meta, names[i]);
        Py_ssize_t plain = size_attribute((PyObject *)&PyType_Type, names[i]);

        if (PyErr_Occurred()) {
            return -1;
        }
        if (size != plain) {
            return 0;
        }
    }
    return 1;
}

/* Assignment to `__class__` refuses this, since `type` itself is immutable; only a
 * class made by a call of its metaclass, or by PyType_FromMetaclass of Python 3.12,
 * gets another one, and both need torch while our types are made. */
PyObject *
tc_py_set_metaclass(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *cls, *meta;
    int same;

    if (!PyArg_ParseTuple(args, "O!O!:_set_metaclass", &PyType_Type, &cls, &PyType_Type,
                          &meta)) {
        return NULL;
    }
    if (Py_TYPE(cls) != &PyType_Type ||
        !(PyType_GetFlags((PyTypeObject *)cls) & Py_TPFLAGS_HEAPTYPE) ||
        !(PyType_GetFlags((PyTypeObject *)meta) & Py_TPFLAGS_HEAPTYPE) ||
        !PyType_IsSubtype((PyTypeObject *)meta, &PyType_Type)) {
        return PyErr_Format(PyExc_TypeError, "%R cannot become the metaclass of %R",
                            meta, cls);
    }
    same = is_laid_out_like_type(meta);
    if (same <= 0) {
        return same < 0
                   ? NULL
                   : PyErr_Format(PyExc_TypeError,
                                  "classes of %R are not laid out like others", meta);
    }
    /* An object of a heap type holds its type; those of `type` held nothing. */
    Py_INCREF(meta);
    Py_SET_TYPE(cls, (PyTypeObject *)meta);
    PyType_Modified((PyTypeObject *)cls);
    Py_RETURN_NONE;
}
