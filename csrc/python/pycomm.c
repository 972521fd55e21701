/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms.TorchComm: life cycle, queries, split and abort. */
#include <stdlib.h>

#include "base/error.h"
#include "python/pyargs.h"
#include "python/pyhook.h"
#include "python/pyissue.h"
#include "python/pyoptional.h"
#include "python/pyreconfigure.h"

static tc_comm *
comm_of(PyObject *obj)
{
    return ((tc_py_comm *)obj)->comm;
}

static void
link_in(tc_py_state *state, tc_py_comm *self)
{
    self->prev = NULL;
    self->next = state->comms;
    if (self->next != NULL) {
        self->next->prev = self;
    }
    state->comms = self;
}

static void
link_out(tc_py_state *state, tc_py_comm *self)
{
    if (self->prev != NULL) {
        self->prev->next = self->next;
    } else {
        state->comms = self->next;
    }
    if (self->next != NULL) {
        self->next->prev = self->prev;
    }
}

PyObject *
tc_py_comm_wrap(tc_py_state *state, tc_comm *comm)
{
    void **slot = tc_comm_face_slot(comm);
    tc_py_comm *self;

    if (*slot != NULL) {
        tc_comm_release(comm);
        return Py_NewRef(*slot);
    }
    self = PyObject_GC_New(tc_py_comm, state->comm_type);
    if (self == NULL) {
        tc_py_comm_leave(state, comm);
        return NULL;
    }
    self->weakrefs = NULL;
    self->comm = comm;
    self->generation = tc_py_generation();
    link_in(state, self);
    *slot = self;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* The operations of a forgotten communicator go on; nobody can be told of an error. */
static void
warn_unfinalized(tc_comm *comm)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (PyErr_WarnFormat(PyExc_ResourceWarning, 1,
                         "communicator '%s' was dropped without finalize()",
                         tc_comm_name(comm)) != 0) {
        PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(type, value, trace);
}

/* After the exit function the engine is gone, which a communicator needs to the end:
 * what is left then goes with the process. */
static void
let_go(tc_py_state *state, tc_py_comm *self)
{
    tc_comm *comm = self->comm;

    link_out(state, self);
    if (self->generation != tc_py_generation() || state->closed) {
        return;
    }
    *tc_comm_face_slot(comm) = NULL;
    if (tc_comm_check_usable(comm, NULL) == TC_ERR_FINALIZED ||
        tc_py_comm_is_held(state, comm)) {
        tc_comm_release(comm);
    } else if (tc_comm_size(comm) == 0) {
        tc_py_comm_leave(state, comm); /* nobody was ever with it, or is any more */
    } else {
        warn_unfinalized(comm);
        tc_py_comm_leave(state, comm);
    }
    tc_py_garbage_check(state);
}

/* Its hooks may refer to it. While something else has the communicator, they are held
 * by that, too. */
static bool
owns_hooks(PyObject *obj)
{
    tc_py_comm *self = (tc_py_comm *)obj;
    tc_py_state *state = tc_py_state_at_end(Py_TYPE(obj));

    return state != NULL && self->generation == tc_py_generation() && !state->closed &&
           !tc_py_comm_is_held(state, self->comm);
}

static int
comm_traverse(PyObject *obj, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(obj));
    return owns_hooks(obj) ? tc_py_hooks_traverse(comm_of(obj), visit, arg) : 0;
}

static int
comm_clear(PyObject *obj)
{
    if (owns_hooks(obj)) {
        tc_hooks_clear(comm_of(obj));
        tc_py_garbage_drain(tc_py_state_of(Py_TYPE(obj)));
    }
    return 0;
}

static void
comm_dealloc(PyObject *obj)
{
    tc_py_comm *self = (tc_py_comm *)obj;
    PyTypeObject *type = Py_TYPE(obj);
    tc_py_state *state = tc_py_state_at_end(type);

    PyObject_GC_UnTrack(obj);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(obj);
    }
    if (state != NULL) {
        let_go(state, self);
    }
    PyObject_GC_Del(obj);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    finalize_doc,
    "finalize($self, /)\n--\n\n"
    "Waits for this rank's outstanding operations and leaves the communicator.\n"
    "Local: other ranks are not waited for. A second call raises \"already\n"
    "finalized\".");

/* Of torch.distributed's own: its destroy_process_group finalizes once for each device
 * type and forgets its groups only if nothing raises. 0, or -1 with an exception. */
static int
excuse_for_torch(const tc_comm *comm, tc_status *status, const tc_error *err)
{
    bool known = *status == TC_OK || *status == TC_ERR_FINALIZED;

    if (*status == TC_INTERRUPTED) {
        return 0;
    }
    *status = TC_OK;
    return known ? 0
                 : PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                                    "communicator '%s' was left: %s",
                                    tc_comm_name(comm), err->message);
}

/* What finalize raises is left in *err_p, or set. */
static tc_status
finalize(tc_py_state *state, tc_comm *comm, tc_error *err_p)
{
    tc_py_pause pause;
    tc_interrupt interrupt = tc_py_pause_begin(&pause);
    tc_status status = tc_comm_finalize(comm, &interrupt, err_p);

    tc_py_pause_end(&pause);
    tc_py_garbage_check(state);
    if (!PyErr_Occurred() && tc_py_comm_is_held(state, comm) &&
        excuse_for_torch(comm, &status, err_p) != 0) {
        return TC_INTERRUPTED;
    }
    return PyErr_Occurred() ? TC_INTERRUPTED : status;
}

static PyObject *
comm_finalize(PyObject *obj, PyObject *Py_UNUSED(none))
{
    tc_py_state *state = tc_py_state_of(Py_TYPE(obj));
    tc_comm *comm = comm_of(obj);
    tc_py_subject subject = {0};
    tc_hook_event event = {.kind = TC_OP_FINALIZE, .face = &subject};
    tc_error err = {0};
    tc_status status = TC_OK;
    bool hooked;

    if (!tc_py_check_process(((tc_py_comm *)obj)->generation, "finalize")) {
        return NULL;
    }
    /* The second time it is only refused. */
    hooked =
        tc_comm_has_hooks(comm) && tc_comm_check_usable(comm, NULL) != TC_ERR_FINALIZED;
    if (hooked) {
        status = tc_py_hooks_begin(comm, &event, &err);
    }
    if (status == TC_OK) {
        status = finalize(state, comm, &err);
    }
    if (status == TC_OK && hooked) {
        status = tc_py_hooks_end(comm, &event, &err);
    }
    if (status != TC_OK) {
        return tc_py_raise(status, &err);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(get_rank_doc, "get_rank($self, /)\n--\n\n"
                           "This process's rank; RuntimeError while there is none,\n"
                           "before the first reconfigure() and after a failed one.");

static PyObject *
comm_get_rank(PyObject *obj, PyObject *Py_UNUSED(none))
{
    if (!tc_py_check_configured(comm_of(obj))) {
        return NULL;
    }
    return PyLong_FromLong(tc_comm_rank(comm_of(obj)));
}

PyDoc_STRVAR(get_size_doc, "get_size($self, /)\n--\n\n"
                           "Number of ranks; RuntimeError where get_rank() raises.");

static PyObject *
comm_get_size(PyObject *obj, PyObject *Py_UNUSED(none))
{
    if (!tc_py_check_configured(comm_of(obj))) {
        return NULL;
    }
    return PyLong_FromLong(tc_comm_size(comm_of(obj)));
}

PyDoc_STRVAR(get_name_doc, "get_name($self, /)\n--\n\n"
                           "The name given to new_comm() or split().");

static PyObject *
comm_get_name(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return PyUnicode_FromString(tc_comm_name(comm_of(obj)));
}

PyDoc_STRVAR(get_backend_doc, "get_backend($self, /)\n--\n\n"
                              "The backend asked for; children inherit it.");

static PyObject *
comm_get_backend(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return PyUnicode_FromString(tc_comm_backend_name(comm_of(obj)));
}

PyDoc_STRVAR(get_backend_version_doc,
             "get_backend_version($self, /)\n--\n\n"
             "The backend's own version; raises where it has none.");

static PyObject *
comm_get_backend_version(PyObject *obj, PyObject *Py_UNUSED(none))
{
    const char *version = tc_comm_backend_version(comm_of(obj));

    if (version == NULL) {
        return tc_py_refuse_operation(obj, "version");
    }
    return PyUnicode_FromString(version);
}

PyDoc_STRVAR(get_device_doc, "get_device($self, /)\n--\n\n"
                             "The torch.device whose tensors it takes.");

static PyObject *
comm_get_device(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return tc_py_device_object(tc_comm_device(comm_of(obj)));
}

static PyObject *
hints_dict(const tc_comm *comm)
{
    const tc_hint *hints;
    size_t n = tc_comm_hints(comm, &hints);
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict != NULL && i < n; i++) {
        PyObject *value = PyUnicode_FromString(hints[i].value);

        if (value == NULL || PyDict_SetItemString(dict, hints[i].key, value) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

PyDoc_STRVAR(get_options_doc, "get_options($self, /)\n--\n\n"
                              "The options in effect, as a new CommOptions.");

static PyObject *
comm_get_options(PyObject *obj, PyObject *Py_UNUSED(none))
{
    tc_comm *comm = comm_of(obj);
    tc_py_state *state = tc_py_state_of(Py_TYPE(obj));
    PyObject *module = PyImport_ImportModule("torchcomms._options");
    PyObject *timeout = tc_py_from_timeout(state, tc_comm_timeout(comm));
    PyObject *hints = hints_dict(comm);
    PyObject *options = NULL;

    if (module != NULL && timeout != NULL && hints != NULL) {
        options = PyObject_CallMethod(
            module, "_effective", "OOOO",
            tc_comm_abort_process(comm) ? Py_True : Py_False, timeout, hints,
            tc_comm_is_reconfigurable(comm) ? Py_True : Py_False);
    }
    Py_XDECREF(hints);
    Py_XDECREF(timeout);
    Py_XDECREF(module);
    return options;
}

PyDoc_STRVAR(set_timeout_doc,
             "set_timeout($self, /, timeout)\n--\n\n"
             "The timeout of later operations that are given none of their own.");

static PyObject *
comm_set_timeout(PyObject *obj, PyTypeObject *cls, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames)
{
    static const tc_py_params params = {"set_timeout", 1, {TC_PY_timeout}};
    tc_py_state *state = tc_py_state_of(cls);
    PyObject *slots[TC_PY_MAX_PARAMS];
    uint64_t ns;

    if (!tc_py_bind(state, &params, args, nargs, kwnames, slots) ||
        !tc_py_to_timeout(state, slots[0], &ns)) {
        return NULL;
    }
    if (ns == 0) {
        return PyErr_Format(PyExc_RuntimeError, "timeout must be positive, but got %S",
                            slots[0]);
    }
    tc_comm_set_timeout(comm_of(obj), ns);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(abort_doc,
             "abort($self, /)\n--\n\n"
             "Makes outstanding and later operations of every rank fail, at once and\n"
             "from any thread, and a reconfigure() that is under way here. finalize()\n"
             "still succeeds, and reconfigure() makes the communicator usable again.");

static PyObject *
comm_abort(PyObject *obj, PyObject *Py_UNUSED(none))
{
    tc_comm *comm = comm_of(obj);
    PyThreadState *thread;

    if (!tc_comm_is_abort_supported(comm)) {
        return tc_py_refuse_operation(obj, "abort");
    }
    if (!tc_py_check_process(((tc_py_comm *)obj)->generation, "abort")) {
        return NULL;
    }
    thread = PyEval_SaveThread();
    tc_comm_abort(comm);
    PyEval_RestoreThread(thread);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(is_abort_supported_doc, "is_abort_supported($self, /)\n--\n\n"
                                     "Whether abort() works with this backend.");

static PyObject *
comm_is_abort_supported(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(tc_comm_is_abort_supported(comm_of(obj)));
}

PyDoc_STRVAR(is_aborted_doc, "is_aborted($self, /)\n--\n\n"
                             "Whether it was aborted or has found a failure, since\n"
                             "the last reconfigure().");

static PyObject *
comm_is_aborted(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(tc_comm_is_aborted(comm_of(obj)));
}

/* The list of a split as an array from malloc; NULL with an exception. */
static int32_t *
read_ranks(PyObject *obj, Py_ssize_t *count_p)
{
    PyObject *list = PySequence_Tuple(obj);
    int32_t *ranks;

    if (list == NULL) {
        return NULL;
    }
    *count_p = PyTuple_Size(list);
    ranks = malloc(((size_t)*count_p + 1) * sizeof(ranks[0]));
    if (ranks == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; ranks != NULL && i < *count_p; i++) {
        long long rank;

        if (!tc_py_to_int(PyTuple_GetItem(list, i), "an element of ranks", &rank)) {
            free(ranks);
            ranks = NULL;
        } else {
            /* Out of range for the core is out of range here. */
            ranks[i] = rank < INT32_MIN   ? INT32_MIN
                       : rank > INT32_MAX ? INT32_MAX
                                          : (int32_t)rank;
        }
    }
    Py_DECREF(list);
    return ranks;
}

static PyObject *
split_by(tc_py_state *state, tc_comm *comm, tc_split_options *options)
{
    tc_py_subject subject = {0};
    tc_hook_event event = {.kind = TC_OP_SPLIT, .split = options, .face = &subject};
    tc_hook_event *hooked = NULL;
    tc_py_pause pause;
    tc_comm *child = NULL;
    tc_error err = {0};
    tc_status status;
    PyObject *obj;

    if (tc_comm_has_hooks(comm)) {
        hooked = &event;
        status = tc_py_hooks_begin(comm, hooked, &err);
        if (status != TC_OK) {
            return tc_py_raise(status, &err);
        }
    }
    options->interrupt = tc_py_pause_begin(&pause);
    status = tc_comm_split(comm, options, &child, &err);
    tc_py_pause_end(&pause);
    if (status != TC_OK || PyErr_Occurred()) {
        if (child != NULL) {
            tc_py_comm_leave(state, child);
        }
        return tc_py_raise(status, &err);
    }
    if (child == NULL) {
        Py_RETURN_NONE;
    }
    obj = tc_py_comm_wrap(state, child);
    if (obj != NULL && hooked != NULL) {
        hooked->child = child;
        status = tc_py_hooks_end(comm, hooked, &err);
        if (status != TC_OK) {
            Py_DECREF(obj);
            return tc_py_raise(status, &err);
        }
    }
    return obj;
}

PyDoc_STRVAR(
    split_doc,
    "split($self, /, ranks, name, hints=None, timeout=None)\n--\n\n"
    "A communicator of some ranks of this one; ranks[i] becomes rank i. Every\n"
    "rank calls it, with the list it is in; a rank in no list passes [] and\n"
    "gets None. Timeout and hints are inherited unless given.");

static PyObject *
comm_split(PyObject *obj, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const tc_py_params params = {
        "split", 2, {TC_PY_ranks, TC_PY_name, TC_PY_hints, TC_PY_timeout}};
    tc_py_state *state = tc_py_state_of(cls);
    PyObject *slots[TC_PY_MAX_PARAMS];
    tc_split_options options = {0};
    PyObject *child = NULL;
    tc_hint *hints = NULL;
    int32_t *ranks;
    Py_ssize_t count;

    if (!tc_py_bind(state, &params, args, nargs, kwnames, slots) ||
        !tc_py_to_timeout(state, slots[3], &options.timeout_ns)) {
        return NULL;
    }
    if (!PyUnicode_Check(slots[1])) {
        tc_py_refuse_type("name", "a str", slots[1]);
        return NULL;
    }
    options.name = PyUnicode_AsUTF8AndSize(slots[1], NULL);
    ranks = options.name != NULL ? read_ranks(slots[0], &count) : NULL;
    if (ranks == NULL) {
        return NULL;
    }
    if (tc_py_to_hints(slots[2], &hints, &options.hint_count)) {
        options.ranks = ranks;
        options.rank_count = (int32_t)count;
        options.hints = hints;
        child = split_by(state, comm_of(obj), &options);
    }
    free(hints);
    free(ranks);
    return child;
}

PyDoc_STRVAR(
    get_mem_allocator_doc,
    "get_mem_allocator($self, /)\n--\n\n"
    "The MemAllocator of the communicator's backend: tensors that the ranks of\n"
    "a host can read in each other's memory. RuntimeError where the backend\n"
    "has none.");

static PyObject *
comm_get_mem_allocator(PyObject *obj, PyObject *Py_UNUSED(none))
{
    tc_comm *comm = comm_of(obj);

    return tc_py_allocator_get(tc_py_state_of(Py_TYPE(obj)), tc_comm_backend_name(comm),
                               tc_comm_device(comm).type);
}

static PyObject *
comm_mem_allocator(PyObject *obj, void *Py_UNUSED(closure))
{
    return comm_get_mem_allocator(obj, NULL);
}

PyDoc_STRVAR(batch_doc, "batch_op_create($self, /)\n--\n\n"
                        "An empty BatchSendRecv.");

static PyObject *
comm_batch_op_create(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return tc_py_batch_create(tc_py_state_of(Py_TYPE(obj)), obj);
}

PyDoc_STRVAR(copy_doc, "__copy__($self, /)\n--\n\nThe communicator itself.");

static PyObject *
comm_copy(PyObject *obj, PyObject *Py_UNUSED(none))
{
    return Py_NewRef(obj);
}

PyDoc_STRVAR(deepcopy_doc, "__deepcopy__($self, memo, /)\n--\n\n"
                           "What memo has for it, else the communicator itself.");

static PyObject *
comm_deepcopy(PyObject *obj, PyObject *memo)
{
    return tc_py_deepcopy(obj, memo, comm_copy);
}

static PyObject *
comm_repr(PyObject *obj)
{
    tc_comm *comm = comm_of(obj);

    if (tc_comm_size(comm) == 0) {
        return PyUnicode_FromFormat("<TorchComm '%s' on %s, without ranks>",
                                    tc_comm_name(comm), tc_comm_backend_name(comm));
    }
    return PyUnicode_FromFormat("<TorchComm '%s' on %s, rank %d of %d>",
                                tc_comm_name(comm), tc_comm_backend_name(comm),
                                (int)tc_comm_rank(comm), (int)tc_comm_size(comm));
}

#define KEYWORDS (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)
#define OPERATION_ROW(name) \
    {#name, (PyCFunction)(void (*)(void))tc_py_comm_##name, KEYWORDS, \
     tc_py_##name##_doc},

#define OPTIONAL_ROW(name) \
    {#name, (PyCFunction)(void (*)(void))tc_py_optional_##name, KEYWORDS, \
     tc_py_optional_##name##_doc},

static PyMethodDef methods[] = {
    TC_PY_OPERATIONS(OPERATION_ROW) TC_PY_OPTIONAL(OPTIONAL_ROW){
        "finalize", comm_finalize, METH_NOARGS, finalize_doc},
    {"get_rank", comm_get_rank, METH_NOARGS, get_rank_doc},
    {"get_size", comm_get_size, METH_NOARGS, get_size_doc},
    {"get_name", comm_get_name, METH_NOARGS, get_name_doc},
    {"get_options", comm_get_options, METH_NOARGS, get_options_doc},
    {"get_device", comm_get_device, METH_NOARGS, get_device_doc},
    {"get_backend", comm_get_backend, METH_NOARGS, get_backend_doc},
    {"get_backend_version", comm_get_backend_version, METH_NOARGS,
     get_backend_version_doc},
    {"set_timeout", (PyCFunction)(void (*)(void))comm_set_timeout, KEYWORDS,
     set_timeout_doc},
    {"set_hints", (PyCFunction)(void (*)(void))tc_py_comm_set_hints, KEYWORDS,
     tc_py_set_hints_doc},
    {"get_init_handle", tc_py_comm_get_init_handle, METH_NOARGS,
     tc_py_get_init_handle_doc},
    {"reconfigure", (PyCFunction)(void (*)(void))tc_py_comm_reconfigure, KEYWORDS,
     tc_py_reconfigure_doc},
    {"abort", comm_abort, METH_NOARGS, abort_doc},
    {"is_abort_supported", comm_is_abort_supported, METH_NOARGS,
     is_abort_supported_doc},
    {"is_aborted", comm_is_aborted, METH_NOARGS, is_aborted_doc},
    {"split", (PyCFunction)(void (*)(void))comm_split, KEYWORDS, split_doc},
    {"get_mem_allocator", comm_get_mem_allocator, METH_NOARGS, get_mem_allocator_doc},
    {"register_pre_hook", (PyCFunction)(void (*)(void))tc_py_comm_register_pre_hook,
     KEYWORDS, tc_py_register_pre_hook_doc},
    {"register_post_hook", (PyCFunction)(void (*)(void))tc_py_comm_register_post_hook,
     KEYWORDS, tc_py_register_post_hook_doc},
    {"register_abort_hook", (PyCFunction)(void (*)(void))tc_py_comm_register_abort_hook,
     KEYWORDS, tc_py_register_abort_hook_doc},
    {"batch_op_create", comm_batch_op_create, METH_NOARGS, batch_doc},
    {"__copy__", comm_copy, METH_NOARGS, copy_doc},
    {"__deepcopy__", comm_deepcopy, METH_O, deepcopy_doc},
    {0},
};

static PyGetSetDef properties[] = {
    {"mem_allocator", comm_mem_allocator, NULL, "What get_mem_allocator() returns.",
     NULL},
    {0},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(tc_py_comm, weakrefs), READONLY, NULL},
    {0},
};

PyDoc_STRVAR(comm_doc,
             "A group of ranks that communicate; made by new_comm() and split().\n\n"
             "All ranks issue the same operations in the same order. One thread at a\n"
             "time may use it.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)comm_doc},
    {Py_tp_dealloc, comm_dealloc},
    {Py_tp_traverse, comm_traverse},
    {Py_tp_clear, comm_clear},
    {Py_tp_repr, comm_repr},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec tc_py_comm_spec = {
    .name = "torchcomms.TorchComm",
    .basicsize = sizeof(tc_py_comm),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
