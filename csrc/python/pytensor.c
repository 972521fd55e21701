/* SPDX-License-Identifier: BSD-3-Clause */
/* A tensor's memory by DLPack's C exchange table, and everything that is refused. */
#include <string.h>

#include "base/dtype.h"
#include "python/dlpack.h"
#include "python/pyargs.h"

/* The exchange table, whose layout is fixed by the capsule's name and major version. */
enum { DLPACK_MAJOR = 1 };

typedef struct tc_py_dlpack {
    uint32_t major;
    uint32_t minor;
    struct tc_py_dlpack *previous;
    void *managed_tensor_allocator;
    void *managed_tensor_from_py_object_no_sync;
    void *managed_tensor_to_py_object_no_sync;
    int (*dltensor_from_py_object_no_sync)(void *obj, dl_tensor *out);
    void *current_work_stream;
} tc_py_dlpack;

/* Which tensor a message is about. */
typedef struct subject {
    tc_py_state *state;
    const tc_comm *comm;
    PyObject *obj;
    const char *name;
    Py_ssize_t index;
} subject;

/* "input" or "input_list[3]", a new reference. */
static PyObject *
subject_text(const subject *s)
{
    return s->index < 0 ? PyUnicode_FromString(s->name)
                        : PyUnicode_FromFormat("%s[%zd]", s->name, s->index);
}

/* Raises `format`, which has %U for the subject and then a conversion for `extra`. */
static bool
refuse(const subject *s, PyObject *exception, const char *format, PyObject *extra)
{
    PyObject *text = subject_text(s);

    if (text != NULL) {
        PyErr_Format(exception, format, text, extra);
        Py_DECREF(text);
    }
    return false;
}

static bool
refuse_other_type(const subject *s)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(s->obj), "__name__");

    if (type != NULL) {
        refuse(s, PyExc_TypeError, "%U must be a torch.Tensor, but got %S", type);
        Py_DECREF(type);
    }
    return false;
}

static bool
is_torch_tensor(tc_py_state *state, PyObject *obj, bool *is_p)
{
    int is;

    if (state->tensor == NULL) {
        PyObject *torch = PyImport_ImportModule("torch");

        if (torch == NULL) {
            return false;
        }
        state->tensor = PyObject_GetAttrString(torch, "Tensor");
        Py_DECREF(torch);
        if (state->tensor == NULL) {
            return false;
        }
    }
    is = PyObject_IsInstance(obj, state->tensor);
    *is_p = is > 0;
    return is >= 0;
}

static const tc_py_dlpack *
load_api(PyTypeObject *type)
{
    PyObject *capsule =
        PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const tc_py_dlpack *api;

    if (capsule == NULL) {
        PyErr_Clear();
        PyErr_SetString(PyExc_RuntimeError,
                        "this torch has no DLPack exchange table; torch 2.12 or later "
                        "is needed");
        return NULL;
    }
    api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    while (api != NULL && api->major != DLPACK_MAJOR) {
        api = api->previous;
    }
    if (api == NULL || api->dltensor_from_py_object_no_sync == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "torch's DLPack table is not of version 1");
        return NULL;
    }
    return api;
}

/* Finds the table by the object's type: a program uses two or three of them. */
static const tc_py_dlpack *
find_api(const subject *s)
{
    tc_py_state *state = s->state;
    PyTypeObject *type = Py_TYPE(s->obj);
    tc_py_tensor_type *seen = state->tensor_types;
    const tc_py_dlpack *api;
    bool is;

    for (int i = 0; i < TC_PY_TENSOR_TYPES; i++) {
        if (seen[i].type == type) {
            return seen[i].api;
        }
    }
    if (!is_torch_tensor(state, s->obj, &is)) {
        return NULL;
    }
    if (!is) {
        refuse_other_type(s);
        return NULL;
    }
    api = load_api(type);
    if (api != NULL) {
        PyTypeObject *last = seen[TC_PY_TENSOR_TYPES - 1].type;

        memmove(seen + 1, seen, (TC_PY_TENSOR_TYPES - 1) * sizeof(seen[0]));
        Py_INCREF(type);
        seen[0] = (tc_py_tensor_type){type, api};
        Py_XDECREF(last);
    }
    return api;
}

static bool
refuse_device(const subject *s, PyObject *device)
{
    PyObject *text = subject_text(s);
    PyObject *own = tc_py_device_text(tc_comm_device(s->comm));

    if (text != NULL && own != NULL) {
        PyErr_Format(PyExc_RuntimeError, "%U is on %S, communicator '%s' on %U", text,
                     device, tc_comm_name(s->comm), own);
    }
    Py_XDECREF(own);
    Py_XDECREF(text);
    return false;
}

static bool
device_type_is(PyObject *device, tc_device_type wanted)
{
    PyObject *type = PyObject_GetAttrString(device, "type");
    bool is = type != NULL && PyUnicode_Check(type) &&
              PyUnicode_CompareWithASCIIString(type, tc_py_device_name(wanted)) == 0;

    Py_XDECREF(type);
    PyErr_Clear();
    return is;
}

static bool
device_matches(const dl_tensor *t, tc_device device)
{
    switch (device.type) {
    case TC_DEVICE_CPU: /* pinned memory too */
        return t->device_type == DL_CPU || t->device_type == DL_CUDA_HOST ||
               t->device_type == DL_ROCM_HOST;
    case TC_DEVICE_CUDA:
        return t->device_type == DL_CUDA &&
               (device.index < 0 || device.index == t->device_id);
    case TC_DEVICE_HIP:
        return t->device_type == DL_ROCM &&
               (device.index < 0 || device.index == t->device_id);
    case TC_DEVICE_XPU:
        return t->device_type == DL_ONEAPI &&
               (device.index < 0 || device.index == t->device_id);
    default:
        return false;
    }
}

/* True where `attribute` of the tensor is true. */
static bool
has_flag(PyObject *obj, const char *attribute)
{
    PyObject *value = PyObject_GetAttrString(obj, attribute);
    bool is = value == Py_True;

    Py_XDECREF(value);
    PyErr_Clear();
    return is;
}

/* Says in our words why torch gives no view: its own text is a C++ stack. */
static bool
refuse_unreadable(const subject *s)
{
    PyObject *device, *layout, *dtype;

    PyErr_Clear();
    device = PyObject_GetAttrString(s->obj, "device");
    if (device == NULL) {
        return false;
    }
    if (!device_type_is(device, tc_comm_device(s->comm).type)) {
        refuse_device(s, device);
        Py_DECREF(device);
        return false;
    }
    Py_DECREF(device);
    if (has_flag(s->obj, "is_quantized")) {
        return refuse(s, PyExc_RuntimeError, "%U is quantized, which is not supported",
                      NULL);
    }
    if (has_flag(s->obj, "is_nested")) {
        return refuse(s, PyExc_RuntimeError,
                      "%U is a nested tensor, which is not supported", NULL);
    }
    layout = PyObject_GetAttrString(s->obj, "layout");
    dtype = PyObject_GetAttrString(s->obj, "dtype");
    if (layout != NULL && dtype != NULL) {
        PyObject *text = PyObject_Str(layout);

        if (text != NULL && PyUnicode_CompareWithASCIIString(text, "torch.strided")) {
            refuse(s, PyExc_RuntimeError, "%U has layout %U: only dense tensors work",
                   text);
        } else if (text != NULL) {
            refuse(s, PyExc_RuntimeError, "%U has dtype %S, which is not supported",
                   dtype);
        }
        Py_XDECREF(text);
    }
    Py_XDECREF(layout);
    Py_XDECREF(dtype);
    return false;
}

/* TC_DTYPE_COUNT where there is none. */
static tc_dtype
float_dtype(const dl_tensor *t)
{
    return t->bits == 16   ? TC_FLOAT16
           : t->bits == 32 ? TC_FLOAT32
           : t->bits == 64 ? TC_FLOAT64
                           : TC_DTYPE_COUNT;
}

static tc_dtype
complex_dtype(const dl_tensor *t)
{
    return t->bits == 32    ? TC_COMPLEX32
           : t->bits == 64  ? TC_COMPLEX64
           : t->bits == 128 ? TC_COMPLEX128
                            : TC_DTYPE_COUNT;
}

static tc_dtype
int_dtype(const dl_tensor *t)
{
    bool is_signed = t->code == DL_INT;

    switch (t->bits) {
    case 8:
        return is_signed ? TC_INT8 : TC_UINT8;
    case 16:
        return is_signed ? TC_INT16 : TC_UINT16;
    case 32:
        return is_signed ? TC_INT32 : TC_UINT32;
    case 64:
        return is_signed ? TC_INT64 : TC_UINT64;
    default:
        return TC_DTYPE_COUNT;
    }
}

static tc_dtype
small_dtype(const dl_tensor *t)
{
    switch (t->code) {
    case DL_BOOL:
        return TC_BOOL;
    case DL_BFLOAT:
        return TC_BFLOAT16;
    case DL_FLOAT8_E4M3FN:
        return TC_FLOAT8_E4M3FN;
    case DL_FLOAT8_E4M3FNUZ:
        return TC_FLOAT8_E4M3FNUZ;
    case DL_FLOAT8_E5M2:
        return TC_FLOAT8_E5M2;
    case DL_FLOAT8_E5M2FNUZ:
        return TC_FLOAT8_E5M2FNUZ;
    case DL_FLOAT8_E8M0FNU:
        return TC_FLOAT8_E8M0FNU;
    case DL_FLOAT4_E2M1FN:
        return TC_FLOAT4_E2M1FN_X2;
    default:
        return TC_DTYPE_COUNT;
    }
}

static tc_dtype
find_dtype(const dl_tensor *t)
{
    tc_dtype dtype = t->code == DL_FLOAT                       ? float_dtype(t)
                     : t->code == DL_INT || t->code == DL_UINT ? int_dtype(t)
                     : t->code == DL_COMPLEX                   ? complex_dtype(t)
                                                               : small_dtype(t);

    /* A type this table does not know would be moved with the wrong length. */
    if (dtype == TC_DTYPE_COUNT ||
        (size_t)t->bits * t->lanes != 8 * tc_dtype_size(dtype)) {
        return TC_DTYPE_COUNT;
    }
    return dtype;
}

/* Counts the elements; false where they do not lie one behind the other in order. */
static bool
measure(const dl_tensor *t, uint64_t *count_p)
{
    uint64_t count = 1;
    bool dense = true;

    for (int32_t d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->strides[d] != (int64_t)count) {
            dense = false;
        }
        count *= (uint64_t)t->shape[d];
    }
    *count_p = count;
    return dense || count == 0;
}

static bool
refuse_strides(const subject *s)
{
    PyObject *shape = PyObject_GetAttrString(s->obj, "shape");
    PyObject *strides = PyObject_CallMethod(s->obj, "stride", NULL);
    PyObject *text = subject_text(s);

    if (shape != NULL && strides != NULL && text != NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "Tensor must be contiguous: %U has shape %S and strides %S", text,
                     shape, strides);
    }
    Py_XDECREF(text);
    Py_XDECREF(strides);
    Py_XDECREF(shape);
    return false;
}

/* DLPack shows neither bit, and such a tensor's memory is not its value. */
static bool
check_bits(const subject *s, tc_dtype dtype)
{
    PyObject *const *names = s->state->names;
    PyObject *is = PyObject_CallMethodNoArgs(s->obj, names[TC_PY_is_neg]);
    bool set;

    if (is == NULL) {
        return false;
    }
    set = is != Py_False;
    Py_DECREF(is);
    if (set) {
        return refuse(s, PyExc_RuntimeError,
                      "%U has its negative bit set: pass resolve_neg() of it", NULL);
    }
    if (dtype < TC_COMPLEX32 || dtype > TC_COMPLEX128) {
        return true;
    }
    is = PyObject_CallMethodNoArgs(s->obj, names[TC_PY_is_conj]);
    if (is == NULL) {
        return false;
    }
    set = is != Py_False;
    Py_DECREF(is);
    if (set) {
        return refuse(s, PyExc_RuntimeError,
                      "%U has its conjugate bit set: pass resolve_conj() of it", NULL);
    }
    return true;
}

/* The rarely reached half of tc_py_view_tensor: why the view is no good. */
static bool
refuse_view(const subject *s, const dl_tensor *t)
{
    PyObject *attribute;

    if (!device_matches(t, tc_comm_device(s->comm))) {
        attribute = PyObject_GetAttrString(s->obj, "device");
        if (attribute != NULL) {
            refuse_device(s, attribute);
        }
    } else {
        attribute = PyObject_GetAttrString(s->obj, "dtype");
        if (attribute != NULL) {
            refuse(s, PyExc_RuntimeError, "%U has dtype %S, which is not supported",
                   attribute);
        }
    }
    Py_XDECREF(attribute);
    return false;
}

static bool
view_by_dlpack(tc_py_state *state, const tc_comm *comm, PyObject *obj, const char *name,
               Py_ssize_t index, tc_py_view *view_p)
{
    subject s = {state, comm, obj, name, index};
    const tc_py_dlpack *api = find_api(&s);
    dl_tensor t = {0};
    uint64_t count;
    tc_dtype dtype;

    if (api == NULL) {
        return false;
    }
    if (api->dltensor_from_py_object_no_sync(obj, &t) != 0) {
        return refuse_unreadable(&s);
    }
    dtype = find_dtype(&t);
    if (!device_matches(&t, tc_comm_device(comm)) || dtype == TC_DTYPE_COUNT) {
        return refuse_view(&s, &t);
    }
    if (!measure(&t, &count)) {
        return refuse_strides(&s);
    }
    if (t.data == NULL && count > 0) {
        return refuse(&s, PyExc_RuntimeError, "%U has no memory of its own", NULL);
    }
    *view_p = (tc_py_view){
        .data = (char *)t.data + (t.data != NULL ? t.byte_offset : 0),
        .count = count,
        .bytes = count * tc_dtype_size(dtype),
        .rows = t.ndim == 0 ? 1 : (uint64_t)t.shape[0],
        .dtype = dtype,
        .whole = dtype != TC_INT8 && dtype != TC_UINT8,
    };
    return check_bits(&s, dtype);
}

bool
tc_py_view_tensor(tc_py_state *state, const tc_comm *comm, PyObject *obj,
                  const char *name, Py_ssize_t index, tc_py_view *view_p)
{
    if (state->view != NULL && tc_comm_device(comm).type == TC_DEVICE_CPU &&
        state->view(obj, view_p)) {
        return true;
    }
    return view_by_dlpack(state, comm, obj, name, index, view_p);
}

bool
tc_py_check_reducible(tc_py_state *state, PyObject *obj, const char *name,
                      const tc_py_view *view)
{
    PyObject *own, *text;
    bool whole;

    if (view->whole) {
        return true;
    }
    own = PyObject_GetAttr(obj, state->names[TC_PY_dtype]);
    text = own != NULL ? PyObject_Str(own) : NULL;
    Py_XDECREF(own);
    if (text == NULL) {
        return false;
    }
    whole = PyUnicode_CompareWithASCIIString(
                text, view->dtype == TC_INT8 ? "torch.int8" : "torch.uint8") == 0;
    if (!whole) {
        PyErr_Format(PyExc_RuntimeError, "%s has dtype %U, which cannot be reduced",
                     name, text);
    }
    Py_DECREF(text);
    return whole;
}
