/* SPDX-License-Identifier: BSD-3-Clause */
/* torch.device and tc_device. */
#include "python/pyargs.h"

static const struct {
    tc_device_type type;
    const char *name;
} devices[] = {
    {TC_DEVICE_CPU, "cpu"},
    {TC_DEVICE_CUDA, "cuda"},
    {TC_DEVICE_HIP, "hip"},
    {TC_DEVICE_XPU, "xpu"},
};

enum { DEVICE_COUNT = sizeof(devices) / sizeof(devices[0]) };

const char *
tc_py_device_name(tc_device_type type)
{
    for (int i = 0; i < DEVICE_COUNT; i++) {
        if (devices[i].type == type) {
            return devices[i].name;
        }
    }
    return "?";
}

PyObject *
tc_py_device_text(tc_device device)
{
    const char *name = tc_py_device_name(device.type);

    return device.index < 0 ? PyUnicode_FromString(name)
                            : PyUnicode_FromFormat("%s:%d", name, (int)device.index);
}

PyObject *
tc_py_device_object(tc_device device)
{
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *text = tc_py_device_text(device);
    PyObject *object = NULL;

    if (torch != NULL && text != NULL) {
        object = PyObject_CallMethod(torch, "device", "O", text);
    }
    Py_XDECREF(text);
    Py_XDECREF(torch);
    return object;
}

bool
tc_py_to_device(PyObject *type, PyObject *index, tc_device *device_p)
{
    long long number = -1;

    if (!PyUnicode_Check(type)) {
        return tc_py_refuse_type("device_type", "a str", type);
    }
    if (index != NULL && index != Py_None &&
        !tc_py_to_int(index, "device_index", &number)) {
        return false;
    }
    for (int i = 0; i < DEVICE_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(type, devices[i].name) == 0) {
            *device_p = (tc_device){devices[i].type, (int32_t)number};
            return true;
        }
    }
    PyErr_Format(PyExc_RuntimeError, "device type '%U' is not supported", type);
    return false;
}
