/* SPDX-License-Identifier: BSD-3-Clause */
/* Optional methods of TorchComm. Arguments are checked like those of other methods, so
 * that a call which is wrong in itself is told so by every backend. */
#include "python/pyoptional.h"

#include "python/pyargs.h"

PyObject *
tc_py_refuse_operation(PyObject *comm, const char *operation)
{
    return PyErr_Format(PyExc_RuntimeError, "%s not implemented for communicator:%s",
                        operation, tc_comm_name(((tc_py_comm *)comm)->comm));
}

/* No backend has any of these yet. */
static PyObject *
refuse(PyObject *obj, PyTypeObject *cls, const tc_py_params *params,
       const char *operation, PyObject *const *args, Py_ssize_t nargs,
       PyObject *kwnames)
{
    PyObject *slots[TC_PY_MAX_PARAMS];

    if (!tc_py_bind(tc_py_state_of(cls), params, args, nargs, kwnames, slots)) {
        return NULL;
    }
    return tc_py_refuse_operation(obj, operation);
}

const char tc_py_optional_tensor_register_doc[] =
    "tensor_register($self, /, tensor)\n--\n\n"
    "Tells the backend of memory that many operations will use. Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_tensor_register(PyObject *obj, PyTypeObject *cls, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"tensor_register", 1, {TC_PY_tensor}};

    return refuse(obj, cls, &params, "tensor_register", args, nargs, kwnames);
}

const char tc_py_optional_tensor_deregister_doc[] =
    "tensor_deregister($self, /, tensor)\n--\n\n"
    "Undoes tensor_register(). Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_tensor_deregister(PyObject *obj, PyTypeObject *cls,
                                 PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static const tc_py_params params = {"tensor_deregister", 1, {TC_PY_tensor}};

    return refuse(obj, cls, &params, "tensor_deregister", args, nargs, kwnames);
}

const char tc_py_optional_get_device_transport_doc[] =
    "get_device_transport($self, /)\n--\n\n"
    "A handle for code on the device. Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_get_device_transport(PyObject *obj, PyTypeObject *cls,
                                    PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames)
{
    static const tc_py_params params = {"get_device_transport", 0, {TC_PY_NO_NAME}};

    return refuse(obj, cls, &params, "get_device_transport", args, nargs, kwnames);
}

const char tc_py_optional_all_gather_p_init_doc[] =
    "all_gather_p_init($self, /, output, hints=None, timeout=None)\n--\n\n"
    "Prepares an all_gather into output that is run many times. Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_all_gather_p_init(PyObject *obj, PyTypeObject *cls,
                                 PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static const tc_py_params params = {
        "all_gather_p_init", 1, {TC_PY_output, TC_PY_hints, TC_PY_timeout}};

    return refuse(obj, cls, &params, "all_gather_p_init", args, nargs, kwnames);
}

const char tc_py_optional_all_gather_p_exec_doc[] =
    "all_gather_p_exec($self, /, handle, input, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "Runs what all_gather_p_init() prepared. Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_all_gather_p_exec(PyObject *obj, PyTypeObject *cls,
                                 PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static const tc_py_params params = {
        "all_gather_p_exec",
        2,
        {TC_PY_handle, TC_PY_input, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}};

    return refuse(obj, cls, &params, "all_gather_p_exec", args, nargs, kwnames);
}

const char tc_py_optional_all_gather_p_free_doc[] =
    "all_gather_p_free($self, /, handle)\n--\n\n"
    "Releases what all_gather_p_init() prepared. Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_all_gather_p_free(PyObject *obj, PyTypeObject *cls,
                                 PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    static const tc_py_params params = {"all_gather_p_free", 1, {TC_PY_handle}};

    return refuse(obj, cls, &params, "all_gather_p_free", args, nargs, kwnames);
}

const char tc_py_optional_new_window_doc[] =
    "new_window($self, /, tensor=None)\n--\n\n"
    "A window of memory that other ranks reach. Raises where\n"
    "the backend has none.";

PyObject *
tc_py_optional_new_window(PyObject *obj, PyTypeObject *cls, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"new_window", 0, {TC_PY_tensor}};

    return refuse(obj, cls, &params, "new_window", args, nargs, kwnames);
}

/* torchcomms._python_backend._implementation(obj) */
static PyObject *
implementation(PyObject *obj)
{
    PyObject *module = PyImport_ImportModule("torchcomms._python_backend");
    PyObject *found = NULL;

    if (module != NULL) {
        found = PyObject_CallMethod(module, "_implementation", "O", obj);
        Py_DECREF(module);
    }
    return found;
}

const char tc_py_optional_get_backend_impl_doc[] =
    "get_backend_impl($self, /)\n--\n\n"
    "The backend's object, an instance of TorchCommBackend: the same one at each\n"
    "call, also after finalize().";

PyObject *
tc_py_optional_get_backend_impl(PyObject *obj, PyTypeObject *cls, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"get_backend_impl", 0, {TC_PY_NO_NAME}};
    PyObject *slots[TC_PY_MAX_PARAMS];

    if (!tc_py_bind(tc_py_state_of(cls), &params, args, nargs, kwnames, slots)) {
        return NULL;
    }
    return implementation(obj);
}

const char tc_py_optional_unsafe_get_backend_doc[] =
    "unsafe_get_backend($self, /)\n--\n\n"
    "The older name of get_backend_impl(), with a DeprecationWarning.";

PyObject *
tc_py_optional_unsafe_get_backend(PyObject *obj, PyTypeObject *cls,
                                  PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kwnames)
{
    static const tc_py_params params = {"unsafe_get_backend", 0, {TC_PY_NO_NAME}};
    PyObject *slots[TC_PY_MAX_PARAMS];

    if (!tc_py_bind(tc_py_state_of(cls), &params, args, nargs, kwnames, slots) ||
        PyErr_WarnEx(PyExc_DeprecationWarning,
                     "unsafe_get_backend() is the older name of get_backend_impl()",
                     1) != 0) {
        return NULL;
    }
    return implementation(obj);
}
