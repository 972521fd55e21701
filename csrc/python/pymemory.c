/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms.MemAllocator: tensors in memory that a backend makes. */
#include <stdlib.h>

#include "base/error.h"
#include "core/memory.h"
#include "python/dlpack.h"
#include "python/pyargs.h"

/* `backend` is a strong reference, a str. */
typedef struct allocator {
    PyObject_HEAD PyObject *backend;
    tc_device device;
} allocator;

/* The bytes of a tensor until its last view dies. */
typedef struct bytes_of {
    dl_managed managed;
    tc_memory memory;
    int64_t count;
} bytes_of;

/* Any thread, with the GIL or without it, also while the interpreter ends. */
static void
delete_bytes(dl_managed *self)
{
    bytes_of *bytes = self->ctx;

    bytes->memory.release(bytes->memory.ctx);
    free(bytes);
}

/* Nobody has taken what is inside. */
static void
delete_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        delete_bytes(PyCapsule_GetPointer(capsule, "dltensor"));
    }
}

static tc_status
allocate(tc_py_state *state, const allocator *self, const char *backend,
         bytes_of *bytes, tc_error *err)
{
    tc_engine *engine;
    PyThreadState *thread;
    tc_status status;

    TC_TRY(tc_py_engine(state, &engine, err));
    thread = PyEval_SaveThread();
    status = tc_memory_alloc(backend, self->device, engine, (uint64_t)bytes->count,
                             &bytes->memory, err);
    PyEval_RestoreThread(thread);
    return status;
}

/* A DLPack capsule of `count` bytes. */
static PyObject *
make_capsule(tc_py_state *state, const allocator *self, int64_t count)
{
    const char *backend = PyUnicode_AsUTF8AndSize(self->backend, NULL);
    bytes_of *bytes = calloc(1, sizeof(*bytes));
    tc_error err = {0};
    tc_status status;
    PyObject *capsule;

    if (backend == NULL || bytes == NULL) {
        free(bytes);
        return backend == NULL ? NULL : PyErr_NoMemory();
    }
    bytes->count = count;
    status = allocate(state, self, backend, bytes, &err);
    if (status != TC_OK) {
        free(bytes);
        return tc_py_raise(status, &err);
    }
    bytes->managed = (dl_managed){.tensor = {.data = bytes->memory.ptr,
                                             .device_type = DL_CPU,
                                             .ndim = 1,
                                             .code = DL_UINT,
                                             .bits = 8,
                                             .lanes = 1,
                                             .shape = &bytes->count},
                                  .ctx = bytes,
                                  .deleter = delete_bytes};
    capsule = PyCapsule_New(bytes, "dltensor", delete_capsule);
    if (capsule == NULL) {
        delete_bytes(&bytes->managed);
    }
    return capsule;
}

/* The bytes of one element; -1 with an exception. */
static long long
element_bytes(PyObject *dtype)
{
    PyObject *size = PyObject_GetAttrString(dtype, "itemsize");
    long long bytes = size != NULL ? PyLong_AsLongLong(size) : -1;

    Py_XDECREF(size);
    if (bytes <= 0) {
        PyErr_Clear();
        tc_py_refuse_type("dtype", "a torch.dtype", dtype);
        return -1;
    }
    return bytes;
}

/* A tuple of ints from an int or a sequence of them, and how many bytes it takes. */
static PyObject *
read_shape(PyObject *obj, long long each, int64_t *bytes_p)
{
    PyObject *shape = PyIndex_Check(obj) ? PyTuple_Pack(1, obj) : PySequence_Tuple(obj);
    int64_t bytes = each;

    if (shape == NULL) {
        PyErr_Clear();
        tc_py_refuse_type("shape", "an int or a sequence of ints", obj);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
        long long n;

        if (!tc_py_to_int(PyTuple_GetItem(shape, i), "shape", &n)) {
            goto err;
        }
        if (n < 0) {
            PyErr_Format(PyExc_RuntimeError, "shape must not be negative, but got %R",
                         shape);
            goto err;
        }
        if (__builtin_mul_overflow(bytes, (int64_t)n, &bytes)) {
            PyErr_Format(PyExc_RuntimeError,
                         "shape %R of %lld bytes an element is more than any memory",
                         shape, each);
            goto err;
        }
    }
    *bytes_p = bytes;
    return shape;

err:
    Py_DECREF(shape);
    return NULL;
}

/* A tensor of its own over the bytes: were it a view of them, autograd would take the
 * bytes for its base. Steals the capsule. */
static PyObject *
make_tensor(PyObject *torch, PyObject *capsule, PyObject *shape, PyObject *dtype)
{
    PyObject *bytes = PyObject_CallMethod(torch, "from_dlpack", "N", capsule);
    PyObject *storage = NULL;
    PyObject *tensor = NULL;
    PyObject *done = NULL;

    if (bytes != NULL) {
        storage = PyObject_CallMethod(bytes, "untyped_storage", NULL);
    }
    if (storage != NULL) {
        PyObject *make = PyObject_GetAttrString(torch, "empty");
        PyObject *args = Py_BuildValue("(i)", 0);
        PyObject *named = Py_BuildValue("{s:O,s:s}", "dtype", dtype, "device", "cpu");

        if (make != NULL && args != NULL && named != NULL) {
            tensor = PyObject_Call(make, args, named);
        }
        Py_XDECREF(named);
        Py_XDECREF(args);
        Py_XDECREF(make);
    }
    if (tensor != NULL) {
        done = PyObject_CallMethod(tensor, "set_", "OiO", storage, 0, shape);
    }
    Py_XDECREF(tensor);
    Py_XDECREF(storage);
    Py_XDECREF(bytes);
    return done;
}

PyDoc_STRVAR(
    empty_doc,
    "empty($self, /, shape, dtype=None)\n--\n\n"
    "A tensor of that shape on the backend's device, torch.float32 where no dtype is\n"
    "given; its values are not set. The memory is given back when the last view dies.");

static PyObject *
allocator_empty(PyObject *obj, PyTypeObject *cls, PyObject *const *args,
                Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"empty", 1, {TC_PY_shape, TC_PY_dtype}};
    tc_py_state *state = tc_py_state_of(cls);
    PyObject *slots[TC_PY_MAX_PARAMS];
    PyObject *torch, *dtype;
    PyObject *shape = NULL;
    PyObject *capsule = NULL;
    PyObject *tensor = NULL;
    int64_t bytes = 0;
    long long each = -1;

    if (!tc_py_bind(state, &params, args, nargs, kwnames, slots)) {
        return NULL;
    }
    torch = PyImport_ImportModule("torch");
    if (torch == NULL) {
        return NULL;
    }
    dtype = slots[1] == NULL || slots[1] == Py_None
                ? PyObject_GetAttrString(torch, "float32")
                : Py_NewRef(slots[1]);
    if (dtype != NULL) {
        each = element_bytes(dtype);
    }
    if (each > 0) {
        shape = read_shape(slots[0], each, &bytes);
    }
    if (shape != NULL) {
        capsule = make_capsule(state, (allocator *)obj, bytes);
    }
    if (capsule != NULL) {
        tensor = make_tensor(torch, capsule, shape, dtype);
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    Py_DECREF(torch);
    return tensor;
}

static PyObject *
allocator_repr(PyObject *obj)
{
    return PyUnicode_FromFormat("<MemAllocator of backend '%U'>",
                                ((allocator *)obj)->backend);
}

static void
allocator_dealloc(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);

    PyObject_GC_UnTrack(obj);
    Py_XDECREF(((allocator *)obj)->backend);
    PyObject_GC_Del(obj);
    Py_DECREF(type);
}

static PyObject *
make_allocator(tc_py_state *state, PyObject *backend, tc_device_type device)
{
    allocator *self = PyObject_GC_New(allocator, state->allocator_type);

    if (self == NULL) {
        return NULL;
    }
    self->backend = Py_NewRef(backend);
    self->device = (tc_device){device, -1};
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

PyObject *
tc_py_allocator_get(tc_py_state *state, const char *backend, tc_device_type device)
{
    PyObject *name, *found;

    if (!tc_memory_is_supported(backend, device)) {
        return PyErr_Format(PyExc_RuntimeError,
                            "No allocator factory registered for backend '%s'",
                            backend);
    }
    name = PyUnicode_FromString(backend);
    if (name == NULL) {
        return NULL;
    }
    found = PyDict_GetItemWithError(state->allocators, name);
    Py_XINCREF(found);
    if (found == NULL && !PyErr_Occurred()) {
        found = make_allocator(state, name, device);
        if (found != NULL && PyDict_SetItem(state->allocators, name, found) != 0) {
            Py_CLEAR(found);
        }
    }
    Py_DECREF(name);
    return found;
}

static PyMethodDef methods[] = {
    {"empty", (PyCFunction)(void (*)(void))allocator_empty,
     METH_METHOD | METH_FASTCALL | METH_KEYWORDS, empty_doc},
    {0},
};

PyDoc_STRVAR(
    allocator_doc,
    "Makes tensors that the ranks of a host can read in each other's memory.\n\n"
    "There is one for a backend; comm.get_mem_allocator() gives it.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)allocator_doc},
    {Py_tp_dealloc, allocator_dealloc},
    {Py_tp_traverse, tc_py_traverse_type},
    {Py_tp_repr, allocator_repr},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec tc_py_allocator_spec = {
    .name = "torchcomms.MemAllocator",
    .basicsize = sizeof(allocator),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
