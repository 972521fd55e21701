/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms._core: the module, its state and its functions. */
#include <pthread.h>

#include "backend/fake/fake.h"
#include "backend/native/native.h"
#include "base/atomic.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "core/registry.h"
#include "python/pyhook.h"
#include "python/pymeta.h"

/* Of the process, not of a module: forks of this process and its parents. */
static uint32_t forks;

static void
count_fork(void)
{
    forks++;
}

uint32_t
tc_py_generation(void)
{
    return tc_load_relaxed_u32(&forks);
}

static void
watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

tc_py_state *
tc_py_state_at_end(PyTypeObject *cls)
{
    PyObject *type, *value, *trace;
    tc_py_state *state;

    PyErr_Fetch(&type, &value, &trace);
    state = tc_py_state_of(cls);
    PyErr_Restore(type, value, trace);
    return state;
}

int
tc_py_traverse_type(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

PyObject *
tc_py_deepcopy(PyObject *self, PyObject *memo, PyCFunction copy)
{
    PyObject *key = PyLong_FromVoidPtr(self);
    PyObject *found = NULL;

    if (key == NULL) {
        return NULL;
    }
    if (!PyDict_Check(memo)) {
        PyErr_SetString(PyExc_TypeError, "memo must be a dict");
    } else {
        found = PyDict_GetItemWithError(memo, key);
        Py_XINCREF(found);
    }
    if (found == NULL && !PyErr_Occurred()) {
        found = copy(self, NULL);
        if (found != NULL && PyDict_SetItem(memo, key, found) != 0) {
            Py_CLEAR(found);
        }
    }
    Py_DECREF(key);
    return found;
}

typedef enum option_kind { OPTION_BOOL, OPTION_INT, OPTION_STRING } option_kind;

static const struct {
    const char *variable;
    option_kind kind;
} option_rows[TC_OPT_COUNT] = {
#define OPTION_ROW(id, variable, type, fallback, min, max, help) \
    {variable, OPTION_##type},
    TC_OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

static PyObject *
read_option(tc_option option)
{
    char text[1024];
    bool flag;
    int64_t number;
    tc_error err = {0};
    tc_status status;

    switch (option_rows[option].kind) {
    case OPTION_BOOL:
        status = tc_option_bool(option, &flag, &err);
        return status != TC_OK ? tc_py_raise(status, &err) : PyBool_FromLong(flag);
    case OPTION_INT:
        status = tc_option_int(option, &number, &err);
        return status != TC_OK ? tc_py_raise(status, &err)
                               : PyLong_FromLongLong(number);
    default:
        status = tc_option_string(option, sizeof(text), text, &err);
        return status != TC_OK ? tc_py_raise(status, &err) : PyUnicode_FromString(text);
    }
}

PyDoc_STRVAR(
    option_doc,
    "_option($module, variable, /)\n--\n\n"
    "The value of an environment variable of torchcomms, or its default; None\n"
    "where it is not set and has none.");

static PyObject *
module_option(PyObject *Py_UNUSED(module), PyObject *variable)
{
    if (!PyUnicode_Check(variable)) {
        return PyErr_Format(PyExc_TypeError, "variable must be a str, but got %R",
                            variable);
    }
    for (int i = 0; i < TC_OPT_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(variable, option_rows[i].variable) == 0) {
            return read_option((tc_option)i);
        }
    }
    return PyErr_Format(PyExc_KeyError, "%U is not an option", variable);
}

PyDoc_STRVAR(registered_doc,
             "_is_backend_registered($module, name, /)\n--\n\n"
             "Whether a backend of that name is in this process. Loads nothing.");

static PyObject *
module_is_backend_registered(PyObject *Py_UNUSED(module), PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);

    return text == NULL ? NULL : PyBool_FromLong(tc_registry_has(text));
}

PyDoc_STRVAR(solitary_doc,
             "_is_solitary($module, name, /)\n--\n\n"
             "Whether communicators of that backend have one rank, whatever the\n"
             "environment says.");

static PyObject *
module_is_solitary(PyObject *Py_UNUSED(module), PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);

    return text == NULL ? NULL : PyBool_FromLong(tc_registry_is_solitary(text));
}

PyDoc_STRVAR(get_mem_allocator_doc,
             "get_mem_allocator($module, backend, /)\n--\n\n"
             "The allocator of that backend, one MemAllocator in a process.\n"
             "RuntimeError where the backend has none.");

static PyObject *
module_get_mem_allocator(PyObject *module, PyObject *backend)
{
    const char *text = PyUnicode_AsUTF8AndSize(backend, NULL);

    return text == NULL
               ? NULL
               : tc_py_allocator_get(PyModule_GetState(module), text, TC_DEVICE_CPU);
}

PyDoc_STRVAR(
    new_comm_doc,
    "_new_comm($module, /, backend, name, device_type, device_index, rank, size, "
    "timeout, abort_process, store, hints, enable_reconfigure=False)\n--\n\n"
    "What torchcomms.new_comm does once rank, size and store are known.");

PyDoc_STRVAR(line_doc,
             "_line_round_trip($module, fd, leads, /)\n--\n\n"
             "Seconds that a bare cache line takes to another process and back. Two\n"
             "processes call it at once on the same file of zeros, one leads; the\n"
             "other gets 0. For benchmarks.");

static PyMethodDef functions[] = {
    {"_new_comm", (PyCFunction)(void (*)(void))tc_py_new_comm,
     METH_FASTCALL | METH_KEYWORDS, new_comm_doc},
    {"_is_backend_registered", module_is_backend_registered, METH_O, registered_doc},
    {"_is_solitary", module_is_solitary, METH_O, solitary_doc},
    {"get_mem_allocator", module_get_mem_allocator, METH_O, get_mem_allocator_doc},
    {"_option", module_option, METH_O, option_doc},
    {"_set_metaclass", tc_py_set_metaclass, METH_VARARGS,
     "_set_metaclass($module, cls, meta, /)\n--\n\n"
     "Makes meta, a class derived from type, the metaclass of cls."},
    {"_line_round_trip", tc_py_line_round_trip, METH_VARARGS, line_doc},
    {"_at_exit", tc_py_at_exit, METH_NOARGS,
     "_at_exit($module, /)\n--\n\nLeaves what was not finalized; run at exit."},
    {0},
};

static int
register_backends(void)
{
    static const struct {
        const char *name;
        const tc_backend *(*table)(void);
    } backends[] = {
        {"fake", tc_fake_backend},
        {"ncclx", tc_native_backend},
        {"torchcomms", tc_native_backend},
    };
    tc_error err = {0};

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        tc_status status = tc_registry_add(backends[i].name, backends[i].table(), &err);

        if (status != TC_OK) {
            tc_py_raise(status, &err);
            return -1;
        }
    }
    return 0;
}

/* A new reference, or NULL. */
static PyObject *
import_from(const char *module_name, const char *attribute)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = NULL;

    if (module != NULL) {
        found = PyObject_GetAttrString(module, attribute);
        Py_DECREF(module);
    }
    return found;
}

static int
intern_names(tc_py_state *state)
{
    for (int i = 0; i < TC_PY_NAME_COUNT; i++) {
        state->names[i] = PyUnicode_InternFromString(tc_py_name_texts[i]);
        if (state->names[i] == NULL) {
            return -1;
        }
    }
    return 0;
}

/* Adds enum `name` with members numbered from 0, made by torchcomms._enums; *enum_p may
 * be NULL. */
static int
add_enum(PyObject *module, const char *name, const char *const *members, int count,
         PyObject **enum_p)
{
    PyObject *make = import_from("torchcomms._enums", "_make");
    PyObject *list = PyList_New(0);
    PyObject *type = NULL;
    int failed = make == NULL || list == NULL ? -1 : 0;

    for (int i = 0; failed == 0 && i < count; i++) {
        PyObject *member = PyUnicode_FromString(members[i]);

        failed = member == NULL ? -1 : PyList_Append(list, member);
        Py_XDECREF(member);
    }
    if (failed == 0) {
        type = PyObject_CallFunction(make, "sO", name, list);
        failed = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    }
    if (failed == 0 && enum_p != NULL) {
        *enum_p = Py_NewRef(type);
    }
    Py_XDECREF(type);
    Py_XDECREF(list);
    Py_XDECREF(make);
    return failed;
}

static int
add_enums(PyObject *module, tc_py_state *state)
{
#define REDOP_TEXT(id) #id,
    static const char *const redops[] = {TC_REDOPS(REDOP_TEXT)};
#undef REDOP_TEXT
#define OP_TEXT(id, name) #name,
    static const char *const ops[] = {TC_OPS(OP_TEXT)};
#undef OP_TEXT
    static const char *const statuses[] = {"NOT_STARTED", "INPROGRESS", "COMPLETED",
                                           "TIMEDOUT", "ERROR"};
    static const char *const p2ps[] = {"SEND", "RECV"};
    static const char *const accesses[] = {"WIN_ACCESS_TYPE_UNIFIED",
                                           "WIN_ACCESS_TYPE_SEPARATE"};
    PyObject *op_enum = NULL;
    bool named = true;

    if (add_enum(module, "RedOpType", redops, TC_REDOP_COUNT, &state->redop_enum) !=
            0 ||
        add_enum(module, "OpName", ops, TC_OP_KIND_COUNT, &op_enum) != 0 ||
        add_enum(module, "WorkStatus", statuses, TC_WORK_ERROR + 1, NULL) != 0 ||
        add_enum(module, "TorchCommWinAccessType", accesses, 2, NULL) != 0) {
        Py_XDECREF(op_enum);
        return -1;
    }
    for (int i = 0; i < TC_OP_KIND_COUNT; i++) {
        state->op_names[i] = PyObject_GetAttrString(op_enum, ops[i]);
        named = named && state->op_names[i] != NULL;
    }
    Py_DECREF(op_enum);
    return named ? add_enum(module, "P2POpType", p2ps, 2, &state->p2p_enum) : -1;
}

static int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type_p)
{
    *type_p = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type_p == NULL ? -1 : PyModule_AddType(module, *type_p);
}

static int
add_types(PyObject *module, tc_py_state *state)
{
    if (add_type(module, &tc_py_comm_spec, &state->comm_type) != 0 ||
        add_type(module, &tc_py_work_spec, &state->work_type) != 0 ||
        add_type(module, &tc_py_batch_spec, &state->batch_type) != 0 ||
        add_type(module, &tc_py_p2p_spec, &state->p2p_type) != 0 ||
        add_type(module, &tc_py_redop_spec, &state->redop_type) != 0 ||
        add_type(module, &tc_py_allocator_spec, &state->allocator_type) != 0 ||
        add_type(module, &tc_py_handle_spec, &state->handle_type) != 0) {
        return -1;
    }
    return tc_py_redops_add(state) != 0 ? -1 : tc_py_hook_types_add(module, state);
}

static int
module_exec(PyObject *module)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tc_py_state *state = PyModule_GetState(module);

    pthread_once(&once, watch_forks);
    if (register_backends() != 0 || intern_names(state) != 0 ||
        add_enums(module, state) != 0 || add_types(module, state) != 0) {
        return -1;
    }
    state->timedelta = import_from("datetime", "timedelta");
    state->done = tc_py_work_wrap(state, NULL);
    state->allocators = PyDict_New();
    if (state->timedelta == NULL || state->done == NULL || state->allocators == NULL) {
        return -1;
    }
    return tc_py_capi_add(module, state);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    tc_py_state *state = PyModule_GetState(module);

    for (int i = 0; i < TC_OP_KIND_COUNT; i++) {
        Py_VISIT(state->pre_types[i]);
        Py_VISIT(state->post_types[i]);
        Py_VISIT(state->op_names[i]);
    }
    Py_VISIT(state->handle_type);
    Py_VISIT(state->comm_type);
    Py_VISIT(state->work_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->p2p_type);
    Py_VISIT(state->redop_type);
    Py_VISIT(state->allocator_type);
    Py_VISIT(state->allocators);
    Py_VISIT(state->redop_enum);
    Py_VISIT(state->p2p_enum);
    Py_VISIT(state->done);
    Py_VISIT(state->timedelta);
    Py_VISIT(state->tensor);
    for (int i = 0; i < TC_PY_TENSOR_TYPES; i++) {
        Py_VISIT(state->tensor_types[i].type);
    }
    return 0;
}

static int
module_clear(PyObject *module)
{
    tc_py_state *state = PyModule_GetState(module);

    tc_py_garbage_drain(state);
    for (int i = 0; i < TC_PY_TENSOR_TYPES; i++) {
        Py_CLEAR(state->tensor_types[i].type);
    }
    for (int i = 0; i < TC_PY_NAME_COUNT; i++) {
        Py_CLEAR(state->names[i]);
    }
    for (int i = 0; i < TC_OP_KIND_COUNT; i++) {
        Py_CLEAR(state->op_names[i]);
        Py_CLEAR(state->post_types[i]);
        Py_CLEAR(state->pre_types[i]);
    }
    Py_CLEAR(state->handle_type);
    Py_CLEAR(state->tensor);
    Py_CLEAR(state->timedelta);
    Py_CLEAR(state->done);
    Py_CLEAR(state->p2p_enum);
    Py_CLEAR(state->redop_enum);
    Py_CLEAR(state->allocators);
    Py_CLEAR(state->allocator_type);
    Py_CLEAR(state->redop_type);
    Py_CLEAR(state->p2p_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->work_type);
    Py_CLEAR(state->comm_type);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "torchcomms._core",
    .m_doc = "The C core of torchcomms behind CPython types.",
    .m_size = sizeof(tc_py_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
