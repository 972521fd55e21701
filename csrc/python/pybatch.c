/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms.P2POp and BatchSendRecv: sends and receives that start together. */
#include <stdlib.h>

#include "python/pyissue.h"

typedef struct tc_py_p2p {
    PyObject_HEAD PyObject *type; /* P2POpType */
    PyObject *tensor;
    long long peer;
} tc_py_p2p;

typedef struct tc_py_batch {
    PyObject_HEAD PyObject *comm; /* tc_py_comm */
    PyObject *ops; /* list of P2POp */
} tc_py_batch;

/* Kinds of P2POpType, by number. */
static const tc_op_kind kinds[] = {TC_OP_SEND, TC_OP_RECV};

static PyObject *
make_p2p(PyTypeObject *cls, PyObject *type, PyObject *tensor, long long peer)
{
    tc_py_p2p *self = PyObject_GC_New(tc_py_p2p, cls);

    if (self != NULL) {
        self->type = Py_NewRef(type);
        self->tensor = Py_NewRef(tensor);
        self->peer = peer;
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

static PyObject *
p2p_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"type", "tensor", "peer", NULL};
    PyObject *type, *tensor;
    long long peer;
    int is;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOL:P2POp", keywords, &type,
                                     &tensor, &peer)) {
        return NULL;
    }
    is = PyObject_IsInstance(type, tc_py_state_of(cls)->p2p_enum);
    if (is <= 0) {
        return is < 0 ? NULL
                      : PyErr_Format(PyExc_TypeError,
                                     "type must be a P2POpType, but got %R", type);
    }
    return make_p2p(cls, type, tensor, peer);
}

static int
p2p_traverse(PyObject *obj, visitproc visit, void *arg)
{
    tc_py_p2p *self = (tc_py_p2p *)obj;

    Py_VISIT(Py_TYPE(obj));
    Py_VISIT(self->type);
    Py_VISIT(self->tensor);
    return 0;
}

static int
p2p_clear(PyObject *obj)
{
    tc_py_p2p *self = (tc_py_p2p *)obj;

    Py_CLEAR(self->type);
    Py_CLEAR(self->tensor);
    return 0;
}

static void
p2p_dealloc(PyObject *obj)
{
    PyTypeObject *cls = Py_TYPE(obj);

    PyObject_GC_UnTrack(obj);
    p2p_clear(obj);
    PyObject_GC_Del(obj);
    Py_DECREF(cls);
}

static PyObject *
p2p_repr(PyObject *obj)
{
    tc_py_p2p *self = (tc_py_p2p *)obj;

    return PyUnicode_FromFormat("P2POp(%S, peer=%lld)", self->type, self->peer);
}

static PyMemberDef p2p_members[] = {
    {"type", T_OBJECT_EX, offsetof(tc_py_p2p, type), 0, "A P2POpType."},
    {"tensor", T_OBJECT_EX, offsetof(tc_py_p2p, tensor), 0, "What is sent or filled."},
    {"peer", T_LONGLONG, offsetof(tc_py_p2p, peer), 0, "The other rank."},
    {0},
};

PyDoc_STRVAR(p2p_doc, "P2POp(type, tensor, peer)\n--\n\n"
                      "One send or receive of a batch.");

static PyType_Slot p2p_slots[] = {
    {Py_tp_doc, (void *)p2p_doc}, {Py_tp_new, p2p_new},
    {Py_tp_dealloc, p2p_dealloc}, {Py_tp_traverse, p2p_traverse},
    {Py_tp_clear, p2p_clear},     {Py_tp_repr, p2p_repr},
    {Py_tp_members, p2p_members}, {0, NULL},
};

PyType_Spec tc_py_p2p_spec = {
    .name = "torchcomms.P2POp",
    .basicsize = sizeof(tc_py_p2p),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = p2p_slots,
};

PyObject *
tc_py_batch_create(tc_py_state *state, PyObject *comm)
{
    PyObject *ops = PyList_New(0);
    tc_py_batch *self =
        ops != NULL ? PyObject_GC_New(tc_py_batch, state->batch_type) : NULL;

    if (self == NULL) {
        Py_XDECREF(ops);
        return NULL;
    }
    self->comm = Py_NewRef(comm);
    self->ops = ops;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Without a clear: the list breaks every cycle that goes through it. */
static int
batch_traverse(PyObject *obj, visitproc visit, void *arg)
{
    tc_py_batch *self = (tc_py_batch *)obj;

    Py_VISIT(Py_TYPE(obj));
    Py_VISIT(self->comm);
    Py_VISIT(self->ops);
    return 0;
}

static void
batch_dealloc(PyObject *obj)
{
    PyTypeObject *cls = Py_TYPE(obj);

    PyObject_GC_UnTrack(obj);
    Py_DECREF(((tc_py_batch *)obj)->ops);
    Py_DECREF(((tc_py_batch *)obj)->comm);
    PyObject_GC_Del(obj);
    Py_DECREF(cls);
}

static tc_comm *
comm_of(PyObject *obj)
{
    return ((tc_py_comm *)((tc_py_batch *)obj)->comm)->comm;
}

/* send and recv: `type` is the number of a P2POpType. */
static PyObject *
append(PyObject *obj, PyTypeObject *cls, const tc_py_params *params, int type,
       PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    tc_py_batch *self = (tc_py_batch *)obj;
    tc_py_state *state = tc_py_state_of(cls);
    tc_comm *comm = comm_of(obj);
    PyObject *slots[TC_PY_MAX_PARAMS];
    PyObject *member, *op = NULL;
    int32_t peer;
    int failed = -1;

    if (!tc_py_bind(state, params, args, nargs, kwnames, slots) ||
        !tc_py_check_configured(comm) ||
        !tc_py_to_rank(slots[1], tc_py_param_text(params, 1), tc_comm_size(comm),
                       &peer) ||
        !tc_py_check_peer(kinds[type], peer, tc_comm_rank(comm))) {
        return NULL;
    }
    member = PyObject_CallFunction(state->p2p_enum, "i", type);
    if (member != NULL) {
        op = make_p2p(state->p2p_type, member, slots[0], peer);
        Py_DECREF(member);
    }
    if (op != NULL) {
        failed = PyList_Append(self->ops, op);
        Py_DECREF(op);
    }
    return failed != 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(batch_send_doc, "send($self, /, tensor, dst)\n--\n\n"
                             "Appends a send of tensor to rank dst.");

static PyObject *
batch_send(PyObject *obj, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const tc_py_params params = {"send", 2, {TC_PY_tensor, TC_PY_dst}};

    return append(obj, cls, &params, 0, args, nargs, kwnames);
}

PyDoc_STRVAR(batch_recv_doc, "recv($self, /, tensor, src)\n--\n\n"
                             "Appends a receive from rank src into tensor.");

static PyObject *
batch_recv(PyObject *obj, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const tc_py_params params = {"recv", 2, {TC_PY_tensor, TC_PY_src}};

    return append(obj, cls, &params, 1, args, nargs, kwnames);
}

/* A batch on its way to the core; `owner` has the tensors. */
typedef struct batch_call {
    tc_py_state *state;
    tc_comm *comm;
    size_t count;
    PyObject *ops; /* borrowed */
    tc_p2p *entries;
    tc_py_range *ranges;
    PyObject *owner;
    uint64_t bytes;
} batch_call;

/* Reads ops[i] into entry i, whose tensor joins the owner. */
static bool
read_op(batch_call *b, PyObject *op, size_t i)
{
    tc_py_p2p *p2p = (tc_py_p2p *)op;
    tc_py_view view;
    long long type;
    int32_t rank = tc_comm_rank(b->comm);
    int32_t peer;
    PyObject *number;
    bool send;

    if (Py_TYPE(op) != b->state->p2p_type) {
        return tc_py_refuse_type("an element of ops", "a torchcomms.P2POp", op);
    }
    if (p2p->type == NULL || p2p->tensor == NULL ||
        PyObject_IsInstance(p2p->type, b->state->p2p_enum) != 1 ||
        !tc_py_to_int(p2p->type, "type", &type)) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "ops[%zu] has no P2POpType or no tensor", i);
        }
        return false;
    }
    send = kinds[type] == TC_OP_SEND;
    number = PyLong_FromLongLong(p2p->peer);
    if (number == NULL) {
        return false;
    }
    if (!tc_py_to_rank(number, send ? "dst" : "src", tc_comm_size(b->comm), &peer)) {
        Py_DECREF(number);
        return false;
    }
    Py_DECREF(number);
    if (!tc_py_check_peer(kinds[type], peer, rank) ||
        !tc_py_view_tensor(b->state, b->comm, p2p->tensor, "ops", (Py_ssize_t)i,
                           &view)) {
        return false;
    }
    PyTuple_SetItem(b->owner, (Py_ssize_t)i, Py_NewRef(p2p->tensor));
    b->bytes += view.bytes;
    b->entries[i] = (tc_p2p){
        .kind = kinds[type],
        .dtype = view.dtype,
        .peer = peer,
        .count = view.count,
        .buf = view.data,
    };
    b->ranges[i] = (tc_py_range){
        .data = view.data,
        .bytes = view.bytes,
        .written = !send,
        .block = send ? 0 : -1 - (int32_t)i,
    };
    return true;
}

static bool
read_entries(void *ctx)
{
    batch_call *b = ctx;

    b->bytes = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (!read_op(b, PyTuple_GetItem(b->ops, (Py_ssize_t)i), i)) {
            return false;
        }
    }
    return tc_py_check_overlap(b->ranges, b->count);
}

static bool
read_ops(batch_call *b)
{
    b->owner = PyTuple_New((Py_ssize_t)b->count);
    b->entries = malloc(b->count * sizeof(b->entries[0]));
    b->ranges = malloc(b->count * sizeof(b->ranges[0]));
    if (b->owner == NULL || b->entries == NULL || b->ranges == NULL) {
        PyErr_NoMemory();
        return false;
    }
    return read_entries(b);
}

static PyObject *
give_owner(void *ctx)
{
    return Py_NewRef(((batch_call *)ctx)->owner);
}

/* Timeout and hints of a BatchP2POptions. */
static bool
read_options(tc_py_state *state, PyObject *options, uint64_t *timeout_ns_p)
{
    PyObject *timeout, *hints;
    bool ok;

    *timeout_ns_p = 0;
    if (options == NULL || options == Py_None) {
        return true;
    }
    timeout = PyObject_GetAttr(options, state->names[TC_PY_timeout]);
    hints = PyObject_GetAttr(options, state->names[TC_PY_hints]);
    ok = timeout != NULL && hints != NULL && tc_py_check_hints(hints) &&
         tc_py_to_timeout(state, timeout, timeout_ns_p);
    Py_XDECREF(hints);
    Py_XDECREF(timeout);
    return ok;
}

static PyObject *
issue_ops(tc_py_state *state, tc_comm *comm, PyObject *ops, bool async,
          uint64_t timeout_ns)
{
    batch_call b = {
        .state = state, .comm = comm, .count = (size_t)PyTuple_Size(ops), .ops = ops};
    PyObject *result = NULL;

    if (b.count == 0) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot issue empty batch operation");
        return NULL;
    }
    if (read_ops(&b)) {
        tc_call call = {
            .kind = TC_OP_BATCH,
            .dtype = b.entries[0].dtype,
            .async = async,
            .batch = b.entries,
            .batch_count = b.count,
        };

        tc_py_issuing i = {state,      comm,       &call,        b.bytes,
                           timeout_ns, give_owner, read_entries, &b};

        result = tc_py_issue_call(&i);
    }
    free(b.ranges);
    free(b.entries);
    Py_XDECREF(b.owner);
    return result;
}

PyDoc_STRVAR(
    issue_doc,
    "issue($self, /, async_op=False, options=None)\n--\n\n"
    "Starts all ops as one group, which never deadlocks whatever their order.\n\n"
    "options is a BatchP2POptions. An empty batch raises \"Cannot issue empty\n"
    "batch operation\". The list is left as it is: a second call repeats it.");

static PyObject *
batch_issue(PyObject *obj, PyTypeObject *cls, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const tc_py_params params = {"issue", 0, {TC_PY_async_op, TC_PY_options}};
    tc_py_state *state = tc_py_state_of(cls);
    PyObject *slots[TC_PY_MAX_PARAMS];
    PyObject *ops, *result;
    uint64_t timeout_ns;
    bool async;

    if (!tc_py_bind(state, &params, args, nargs, kwnames, slots) ||
        !tc_py_check_configured(comm_of(obj)) ||
        !tc_py_to_bool(slots[0], "async_op", &async) ||
        !read_options(state, slots[1], &timeout_ns)) {
        return NULL;
    }
    ops = PySequence_Tuple(((tc_py_batch *)obj)->ops);
    if (ops == NULL) {
        return NULL;
    }
    result = issue_ops(state, comm_of(obj), ops, async, timeout_ns);
    Py_DECREF(ops);
    return result;
}

static PyObject *
batch_get_ops(PyObject *obj, void *Py_UNUSED(closure))
{
    return Py_NewRef(((tc_py_batch *)obj)->ops);
}

static int
batch_set_ops(PyObject *obj, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *old = ((tc_py_batch *)obj)->ops;

    if (value == NULL || !PyList_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "ops must be a list of P2POp");
        return -1;
    }
    ((tc_py_batch *)obj)->ops = Py_NewRef(value);
    Py_DECREF(old);
    return 0;
}

#define KEYWORDS (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)

static PyMethodDef batch_methods[] = {
    {"send", (PyCFunction)(void (*)(void))batch_send, KEYWORDS, batch_send_doc},
    {"recv", (PyCFunction)(void (*)(void))batch_recv, KEYWORDS, batch_recv_doc},
    {"issue", (PyCFunction)(void (*)(void))batch_issue, KEYWORDS, issue_doc},
    {0},
};

static PyGetSetDef batch_getset[] = {
    {"ops", batch_get_ops, batch_set_ops, "The list of P2POp so far.", NULL},
    {0},
};

PyDoc_STRVAR(batch_doc, "Sends and receives that are started together; made by\n"
                        "TorchComm.batch_op_create().");

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, (void *)batch_doc},   {Py_tp_dealloc, batch_dealloc},
    {Py_tp_traverse, batch_traverse}, {Py_tp_methods, batch_methods},
    {Py_tp_getset, batch_getset},     {0, NULL},
};

PyType_Spec tc_py_batch_spec = {
    .name = "torchcomms.BatchSendRecv",
    .basicsize = sizeof(tc_py_batch),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};
