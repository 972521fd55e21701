/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms.RemovableHandle: the way to take a hook back. */
#include "python/pyhook.h"

typedef struct handle {
    PyObject_HEAD tc_hook *hook;
    uint32_t generation;
} handle;

PyObject *
tc_py_handle_make(tc_py_state *state, tc_hook *hook)
{
    handle *self = PyObject_GC_New(handle, state->handle_type);

    if (self == NULL) {
        tc_hook_release(hook);
        return NULL;
    }
    self->hook = hook;
    self->generation = tc_py_generation();
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* In a fork another thread of the parent may have had the lock of the hooks. */
static void
handle_dealloc(PyObject *obj)
{
    handle *self = (handle *)obj;
    PyTypeObject *type = Py_TYPE(obj);

    PyObject_GC_UnTrack(obj);
    if (self->generation == tc_py_generation()) {
        tc_hook_release(self->hook);
    }
    PyObject_GC_Del(obj);
    Py_DECREF(type);
}

PyDoc_STRVAR(remove_doc, "remove($self, /)\n--\n\n"
                         "Unregisters the hook; does nothing the second time, or when\n"
                         "the communicator is gone.");

static PyObject *
handle_remove(PyObject *obj, PyObject *Py_UNUSED(none))
{
    handle *self = (handle *)obj;

    if (!tc_py_check_process(self->generation, "remove")) {
        return NULL;
    }
    tc_hook_remove(self->hook);
    tc_py_garbage_check(tc_py_state_of(Py_TYPE(obj)));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"remove", handle_remove, METH_NOARGS, remove_doc},
    {0},
};

PyDoc_STRVAR(handle_doc,
             "What registering a hook returns. Dropping it unregisters nothing.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)handle_doc},
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_traverse, tc_py_traverse_type},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec tc_py_handle_spec = {
    .name = "torchcomms.RemovableHandle",
    .basicsize = sizeof(handle),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
