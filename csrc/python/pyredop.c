/* SPDX-License-Identifier: BSD-3-Clause */
/* torchcomms.ReduceOp: one of the fixed reductions, or PREMUL_SUM with its factor. */
#include "base/dtype.h"
#include "python/pyargs.h"

static PyObject *
make(PyTypeObject *type, tc_redop op, double factor)
{
    tc_py_redop *self = PyObject_GC_New(tc_py_redop, type);

    if (self != NULL) {
        self->op = op;
        self->factor = factor;
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

static PyObject *
redop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"opType", NULL};
    tc_py_state *state = tc_py_state_of(type);
    PyObject *op_type;
    long long number;
    int is;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:ReduceOp", keywords, &op_type)) {
        return NULL;
    }
    is = PyObject_IsInstance(op_type, state->redop_enum);
    if (is <= 0) {
        return is < 0 ? NULL
                      : PyErr_Format(PyExc_TypeError,
                                     "opType must be a RedOpType, but got %R", op_type);
    }
    if (!tc_py_to_int(op_type, "opType", &number)) {
        return NULL;
    }
    if (number == TC_REDOP_PREMUL_SUM) {
        PyErr_SetString(PyExc_RuntimeError,
                        "PREMUL_SUM needs a factor: use ReduceOp.PREMUL_SUM(factor)");
        return NULL;
    }
    return make(type, (tc_redop)number, 1.0);
}

static void
redop_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    premul_sum_doc,
    "PREMUL_SUM($type, factor, /)\n--\n\n"
    "A sum in which each rank's contribution is first multiplied by its own\n"
    "factor, a number or a tensor of one element. Floating and complex dtypes.");

/* A class method, so that it has the type to make: to the caller it looks static. */
static PyObject *
redop_premul_sum(PyObject *type, PyObject *factor)
{
    double value;
    PyObject *number = PyNumber_Float(factor);

    if (number == NULL) {
        return NULL;
    }
    value = PyFloat_AsDouble(number);
    Py_DECREF(number);
    return make((PyTypeObject *)type, TC_REDOP_PREMUL_SUM, value);
}

PyDoc_STRVAR(copy_doc, "__copy__($self, /)\n--\n\nAn op of the same type.");

static PyObject *
redop_copy(PyObject *self, PyObject *Py_UNUSED(none))
{
    tc_py_redop *op = (tc_py_redop *)self;

    return make(Py_TYPE(self), op->op, op->factor);
}

PyDoc_STRVAR(deepcopy_doc,
             "__deepcopy__($self, memo, /)\n--\n\n"
             "What memo has for this object; otherwise a copy, stored there.");

static PyObject *
redop_deepcopy(PyObject *self, PyObject *memo)
{
    return tc_py_deepcopy(self, memo, redop_copy);
}

static PyObject *
redop_get_type(PyObject *self, void *Py_UNUSED(closure))
{
    tc_py_state *state = tc_py_state_of(Py_TYPE(self));

    return PyObject_CallFunction(state->redop_enum, "i",
                                 (int)((tc_py_redop *)self)->op);
}

static PyObject *
redop_repr(PyObject *self)
{
    tc_py_redop *op = (tc_py_redop *)self;
    PyObject *factor, *text;

    if (op->op != TC_REDOP_PREMUL_SUM) {
        return PyUnicode_FromFormat("ReduceOp.%s", tc_redop_name(op->op));
    }
    factor = PyFloat_FromDouble(op->factor);
    if (factor == NULL) {
        return NULL;
    }
    text = PyUnicode_FromFormat("ReduceOp.PREMUL_SUM(%R)", factor);
    Py_DECREF(factor);
    return text;
}

PyObject *
tc_py_redop_get(tc_py_state *state, tc_redop op, double factor)
{
    return op == TC_REDOP_PREMUL_SUM
               ? make(state->redop_type, op, factor)
               : PyObject_GetAttrString((PyObject *)state->redop_type,
                                        tc_redop_name(op));
}

int
tc_py_redops_add(tc_py_state *state)
{
    for (int i = 0; i < TC_REDOP_COUNT; i++) {
        PyObject *op;
        int failed;

        if (i == TC_REDOP_PREMUL_SUM) {
            continue;
        }
        op = make(state->redop_type, (tc_redop)i, 1.0);
        if (op == NULL) {
            return -1;
        }
        failed = PyObject_SetAttrString((PyObject *)state->redop_type,
                                        tc_redop_name((tc_redop)i), op);
        Py_DECREF(op);
        if (failed != 0) {
            return -1;
        }
    }
    return 0;
}

static PyMethodDef methods[] = {
    {"PREMUL_SUM", redop_premul_sum, METH_O | METH_CLASS, premul_sum_doc},
    {"__copy__", redop_copy, METH_NOARGS, copy_doc},
    {"__deepcopy__", redop_deepcopy, METH_O, deepcopy_doc},
    {0},
};

static PyGetSetDef getset[] = {
    {"type", redop_get_type, NULL, "The RedOpType of this op.", NULL},
    {0},
};

PyDoc_STRVAR(
    redop_doc,
    "ReduceOp(opType)\n--\n\n"
    "How values of different ranks are combined: ReduceOp.SUM, PRODUCT, MIN,\n"
    "MAX, BAND, BOR, BXOR, AVG, or ReduceOp.PREMUL_SUM(factor). Ops are equal\n"
    "only to themselves.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)redop_doc}, {Py_tp_new, redop_new},
    {Py_tp_dealloc, redop_dealloc}, {Py_tp_traverse, tc_py_traverse_type},
    {Py_tp_repr, redop_repr},       {Py_tp_methods, methods},
    {Py_tp_getset, getset},         {0, NULL},
};

PyType_Spec tc_py_redop_spec = {
    .name = "torchcomms.ReduceOp",
    .basicsize = sizeof(tc_py_redop),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
