/* SPDX-License-Identifier: BSD-3-Clause */
/* The classes of what pre- and post-hooks are given: one of each for an operation. */
#include "python/pyhook.h"

/* X(name): the attributes that pre-hook arguments may have. */
#define ATTRIBUTES(X) \
    X(tensor) \
    X(input) \
    X(output) \
    X(peer) \
    X(root) \
    X(op) \
    X(input_split_sizes) \
    X(output_split_sizes) \
    X(ranks) \
    X(name) \
    X(num_ops) \
    X(async_op)

typedef enum attribute {
#define ATTRIBUTE_ID(name) AT_##name,
    ATTRIBUTES(ATTRIBUTE_ID)
#undef ATTRIBUTE_ID
        ATTRIBUTE_COUNT
} attribute;

static const char *const attribute_names[ATTRIBUTE_COUNT] = {
#define ATTRIBUTE_TEXT(name) #name,
    ATTRIBUTES(ATTRIBUTE_TEXT)
#undef ATTRIBUTE_TEXT
};

/* What an operation's class has, and which of it are lists. */
typedef struct row {
    const char *pre;
    const char *post;
    uint32_t has;
    uint32_t lists;
} row;

#define CLASSES(stem) \
    "torchcomms." stem "PreHookArgs", "torchcomms." stem "PostHookArgs"
#define HAS(name) (1u << AT_##name)
#define ONE (HAS(tensor) | HAS(async_op))
#define TWO (HAS(input) | HAS(output) | HAS(async_op))
#define SPLITS (HAS(input_split_sizes) | HAS(output_split_sizes))

static const row rows[TC_OP_KIND_COUNT] = {
    [TC_OP_SEND] = {CLASSES("Send"), ONE | HAS(peer), 0},
    [TC_OP_RECV] = {CLASSES("Recv"), ONE | HAS(peer), 0},
    [TC_OP_BROADCAST] = {CLASSES("Broadcast"), ONE | HAS(root), 0},
    [TC_OP_ALL_REDUCE] = {CLASSES("AllReduce"), ONE | HAS(op), 0},
    [TC_OP_REDUCE] = {CLASSES("Reduce"), ONE | HAS(root) | HAS(op), 0},
    [TC_OP_ALL_GATHER] = {CLASSES("AllGather"), TWO, HAS(output)},
    [TC_OP_ALL_GATHER_V] = {CLASSES("AllGatherV"), TWO, HAS(output)},
    [TC_OP_ALL_GATHER_SINGLE] = {CLASSES("AllGatherSingle"), TWO, 0},
    [TC_OP_REDUCE_SCATTER] = {CLASSES("ReduceScatter"), TWO | HAS(op), HAS(input)},
    [TC_OP_REDUCE_SCATTER_V] = {CLASSES("ReduceScatterV"), TWO | HAS(op), HAS(input)},
    [TC_OP_REDUCE_SCATTER_SINGLE] = {CLASSES("ReduceScatterSingle"), TWO | HAS(op), 0},
    [TC_OP_ALL_TO_ALL_SINGLE] = {CLASSES("AllToAllSingle"), TWO, 0},
    [TC_OP_ALL_TO_ALL_V_SINGLE] = {CLASSES("AllToAllVSingle"), TWO | SPLITS, SPLITS},
    [TC_OP_ALL_TO_ALL] = {CLASSES("AllToAll"), TWO, HAS(input) | HAS(output)},
    [TC_OP_BARRIER] = {CLASSES("Barrier"), HAS(async_op), 0},
    [TC_OP_SCATTER] = {CLASSES("Scatter"), TWO | HAS(root), HAS(input)},
    [TC_OP_GATHER] = {CLASSES("Gather"), TWO | HAS(root), HAS(output)},
    [TC_OP_GATHER_SINGLE] = {CLASSES("GatherSingle"), TWO | HAS(root), 0},
    [TC_OP_SPLIT] = {CLASSES("Split"), HAS(ranks) | HAS(name), HAS(ranks)},
    [TC_OP_NEW_WINDOW] = {CLASSES("NewWindow"), 0, 0},
    [TC_OP_FINALIZE] = {CLASSES("Finalize"), 0, 0},
    [TC_OP_BATCH] = {CLASSES("BatchOpIssue"), HAS(num_ops) | HAS(async_op), 0},
};

/* Pre-hooks: NULL where the class does not have the attribute. */
typedef struct pre_args {
    PyObject_HEAD PyObject *values[ATTRIBUTE_COUNT];
} pre_args;

/* Post-hooks: the work is referred to weakly, so that whoever keeps the arguments does
 * not keep the tensors. */
typedef struct post_args {
    PyObject_HEAD PyObject *work; /* a weak reference, or NULL */
    PyObject *child;
} post_args;

/* Values --------------------------------------------------------------------------- */

static PyObject *
ranks_of(const tc_split_options *split)
{
    PyObject *list = PyList_New(0);

    for (int32_t i = 0; list != NULL && i < split->rank_count; i++) {
        PyObject *rank = PyLong_FromLong(split->ranks[i]);

        if (rank == NULL || PyList_Append(list, rank) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(rank);
    }
    return list;
}

/* None, or an empty list, where the caller has nothing. */
static PyObject *
ask(const tc_hook_event *event, tc_py_part part, bool list)
{
    const tc_py_subject *subject = event->face;
    PyObject *value =
        subject->get != NULL ? subject->get(subject->ctx, part, list) : NULL;

    if (value != NULL || PyErr_Occurred()) {
        return value;
    }
    return list ? PyList_New(0) : Py_NewRef(Py_None);
}

static PyObject *
op_of(tc_py_state *state, const tc_hook_event *event)
{
    const tc_py_subject *subject = event->face;
    PyObject *value =
        subject->get != NULL ? subject->get(subject->ctx, TC_PY_PART_OP, false) : NULL;

    if (value != NULL || PyErr_Occurred()) {
        return value;
    }
    return tc_py_redop_get(state, event->call->redop, event->call->factor);
}

static PyObject *
value_of(tc_py_state *state, const tc_hook_event *event, attribute a)
{
    bool list = (rows[event->kind].lists >> a & 1) != 0;

    switch (a) {
    case AT_tensor:
        return ask(event, TC_PY_PART_TENSOR, list);
    case AT_input:
        return ask(event, TC_PY_PART_INPUT, list);
    case AT_output:
        return ask(event, TC_PY_PART_OUTPUT, list);
    case AT_input_split_sizes:
        return ask(event, TC_PY_PART_INPUT_SPLITS, list);
    case AT_output_split_sizes:
        return ask(event, TC_PY_PART_OUTPUT_SPLITS, list);
    case AT_op:
        return op_of(state, event);
    case AT_ranks:
        return ranks_of(event->split);
    case AT_name:
        return PyUnicode_FromString(event->split->name);
    case AT_num_ops:
        return PyLong_FromUnsignedLongLong(event->call->batch_count);
    case AT_async_op:
        return PyBool_FromLong(event->async);
    default: /* peer, root */
        return PyLong_FromLong(event->call->root);
    }
}

/* Pre-hooks ------------------------------------------------------------------------ */

PyObject *
tc_py_pre_args_make(tc_py_state *state, const tc_hook_event *event)
{
    uint32_t has = rows[event->kind].has;
    pre_args *self = PyObject_GC_New(pre_args, state->pre_types[event->kind]);
    bool ok = true;

    if (self == NULL) {
        return NULL;
    }
    for (int a = 0; a < ATTRIBUTE_COUNT; a++) {
        self->values[a] = NULL;
    }
    for (int a = 0; a < ATTRIBUTE_COUNT && ok; a++) {
        if ((has >> a & 1) != 0) {
            self->values[a] = value_of(state, event, (attribute)a);
            ok = self->values[a] != NULL;
        }
    }
    PyObject_GC_Track(self);
    if (!ok) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
pre_traverse(PyObject *obj, visitproc visit, void *arg)
{
    pre_args *self = (pre_args *)obj;

    Py_VISIT(Py_TYPE(obj));
    for (int a = 0; a < ATTRIBUTE_COUNT; a++) {
        Py_VISIT(self->values[a]);
    }
    return 0;
}

static int
pre_clear(PyObject *obj)
{
    pre_args *self = (pre_args *)obj;

    for (int a = 0; a < ATTRIBUTE_COUNT; a++) {
        Py_CLEAR(self->values[a]);
    }
    return 0;
}

static void
pre_dealloc(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);

    PyObject_GC_UnTrack(obj);
    pre_clear(obj);
    PyObject_GC_Del(obj);
    Py_DECREF(type);
}

static int
add_pre_type(PyObject *module, const row *r, PyTypeObject **type_p)
{
    PyMemberDef members[ATTRIBUTE_COUNT + 1] = {{0}};
    int count = 0;
    PyType_Slot slots[] = {
        {Py_tp_doc, "What a pre-hook of the operation is given."},
        {Py_tp_dealloc, pre_dealloc},
        {Py_tp_traverse, pre_traverse},
        {Py_tp_clear, pre_clear},
        {Py_tp_members, members},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = r->pre,
        .basicsize = sizeof(pre_args),
        .flags =
            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };

    for (int a = 0; a < ATTRIBUTE_COUNT; a++) {
        if ((r->has >> a & 1) != 0) {
            members[count++] =
                (PyMemberDef){attribute_names[a], T_OBJECT_EX,
                              (Py_ssize_t)(offsetof(pre_args, values) +
                                           sizeof(PyObject *) * (size_t)a),
                              READONLY, NULL};
        }
    }
    *type_p = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return *type_p == NULL ? -1 : PyModule_AddType(module, *type_p);
}

/* Post-hooks ----------------------------------------------------------------------- */

PyObject *
tc_py_post_args_make(tc_py_state *state, tc_op_kind kind, PyObject *work,
                     PyObject *child)
{
    PyObject *weak = work != NULL ? PyWeakref_NewRef(work, NULL) : NULL;
    post_args *self;

    if (work != NULL && weak == NULL) {
        return NULL;
    }
    self = PyObject_GC_New(post_args, state->post_types[kind]);
    if (self == NULL) {
        Py_XDECREF(weak);
        return NULL;
    }
    self->work = weak;
    self->child = Py_XNewRef(child);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int
post_traverse(PyObject *obj, visitproc visit, void *arg)
{
    post_args *self = (post_args *)obj;

    Py_VISIT(Py_TYPE(obj));
    Py_VISIT(self->work);
    Py_VISIT(self->child);
    return 0;
}

static int
post_clear(PyObject *obj)
{
    post_args *self = (post_args *)obj;

    Py_CLEAR(self->work);
    Py_CLEAR(self->child);
    return 0;
}

static void
post_dealloc(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);

    PyObject_GC_UnTrack(obj);
    post_clear(obj);
    PyObject_GC_Del(obj);
    Py_DECREF(type);
}

static PyObject *
post_get_work(PyObject *obj, void *Py_UNUSED(closure))
{
    PyObject *weak = ((post_args *)obj)->work;

    return weak != NULL ? PyObject_CallFunctionObjArgs(weak, NULL) : Py_NewRef(Py_None);
}

static PyObject *
post_get_child(PyObject *obj, void *Py_UNUSED(closure))
{
    PyObject *child = ((post_args *)obj)->child;

    return Py_NewRef(child != NULL ? child : Py_None);
}

static PyGetSetDef work_getset[] = {
    {"_work", post_get_work, NULL, "The TorchWork, while there is one.", NULL},
    {0},
};

static PyGetSetDef split_getset[] = {
    {"_work", post_get_work, NULL, "None.", NULL},
    {"_child", post_get_child, NULL, "The TorchComm that came out.", NULL},
    {0},
};

/* `base` may be NULL. */
static PyTypeObject *
make_post_type(PyObject *module, const char *name, PyGetSetDef *getset,
               PyTypeObject *base, unsigned int more_flags)
{
    PyType_Slot slots[] = {
        {Py_tp_doc, "What a post-hook of the operation is given."},
        {Py_tp_dealloc, post_dealloc},
        {Py_tp_traverse, post_traverse},
        {Py_tp_clear, post_clear},
        {Py_tp_getset, getset},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = name,
        .basicsize = sizeof(post_args),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                 Py_TPFLAGS_DISALLOW_INSTANTIATION | more_flags,
        .slots = slots,
    };
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, (PyObject *)base);

    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) != 0) {
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static bool
is_collective(tc_op_kind kind)
{
    return kind != TC_OP_SPLIT && kind != TC_OP_NEW_WINDOW && kind != TC_OP_FINALIZE &&
           kind != TC_OP_BATCH;
}

int
tc_py_hook_types_add(PyObject *module, tc_py_state *state)
{
    PyTypeObject *base = make_post_type(module, "torchcomms.CollectivePostHookArgs",
                                        work_getset, NULL, Py_TPFLAGS_BASETYPE);
    int failed = base == NULL ? -1 : 0;

    for (int kind = 0; kind < TC_OP_KIND_COUNT && failed == 0; kind++) {
        failed = add_pre_type(module, &rows[kind], &state->pre_types[kind]);
        if (failed == 0) {
            state->post_types[kind] =
                make_post_type(module, rows[kind].post,
                               kind == TC_OP_SPLIT ? split_getset : work_getset,
                               is_collective((tc_op_kind)kind) ? base : NULL, 0);
            failed = state->post_types[kind] == NULL ? -1 : 0;
        }
    }
    Py_XDECREF(base);
    return failed;
}
