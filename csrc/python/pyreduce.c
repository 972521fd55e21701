/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations that reduce: all_reduce, reduce and the three reduce_scatters. */
#include "python/pyissue.h"

const char tc_py_all_reduce_doc[] =
    "all_reduce($self, /, tensor, op, async_op=False, hints=None, timeout=None)\n--\n\n"
    "Reduces the ranks' tensors, in place, with the same result on every rank.\n\n"
    "All ranks pass as many elements of the same dtype. Raises RuntimeError for a\n"
    "tensor that is not contiguous or on another device, and for an op that has no\n"
    "meaning for the dtype.";

static bool
build_all_reduce(tc_py_issue *issue)
{
    tc_py_view view;

    if (!tc_py_take_tensor(issue, 0, &view) || !tc_py_take_op(issue, 1)) {
        return false;
    }
    issue->call.in = issue->call.out = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation all_reduce = {
    TC_OP_ALL_REDUCE,
    build_all_reduce,
    {"all_reduce",
     2,
     {TC_PY_tensor, TC_PY_op, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_reduce(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_reduce, self, cls, args, nargs, kwnames);
}

const char tc_py_reduce_doc[] =
    "reduce($self, /, tensor, root, op, async_op=False, hints=None, timeout=None)\n"
    "--\n\n"
    "Reduces the ranks' tensors into root's, in place.\n\n"
    "The tensors of the other ranks are unspecified afterwards. Raises as all_reduce,\n"
    "and for a root that is no rank.";

static bool
build_reduce(tc_py_issue *issue)
{
    tc_py_view view;

    if (!tc_py_take_tensor(issue, 0, &view) || !tc_py_take_root(issue, 1) ||
        !tc_py_take_op(issue, 2)) {
        return false;
    }
    issue->call.in = issue->call.out = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation reduce = {
    TC_OP_REDUCE,
    build_reduce,
    {"reduce",
     3,
     {TC_PY_tensor, TC_PY_root, TC_PY_op, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_reduce(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                  Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&reduce, self, cls, args, nargs, kwnames);
}

/* Both list forms: `even` wants all blocks to be like the output. */
static bool
build_scatter_list(tc_py_issue *issue, bool even)
{
    tc_py_view output;

    if (!tc_py_take_tensor(issue, 0, &output) ||
        !tc_py_take_list(issue, 1, &issue->in) || !tc_py_take_op(issue, 2)) {
        return false;
    }
    for (int32_t r = 0; r < issue->size; r++) {
        if ((even || r == issue->rank) &&
            !tc_py_check_count(issue, 1, r, issue->in.counts[r], output.count)) {
            return false;
        }
    }
    issue->call.out = output.data;
    issue->call.count = output.count;
    issue->call.in_blocks = tc_py_list_blocks(&issue->in);
    return tc_py_check_call_overlap(issue);
}

const char tc_py_reduce_scatter_doc[] =
    "reduce_scatter($self, /, output, input_list, op, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "output becomes the reduction of all ranks' input_list[rank].\n\n"
    "input_list has a tensor for each rank, all with as many elements as output.";

static bool
build_reduce_scatter(tc_py_issue *issue)
{
    return build_scatter_list(issue, true);
}

static const tc_py_operation reduce_scatter = {
    TC_OP_REDUCE_SCATTER,
    build_reduce_scatter,
    {"reduce_scatter",
     3,
     {TC_PY_output, TC_PY_input_list, TC_PY_op, TC_PY_async_op, TC_PY_hints,
      TC_PY_timeout}},
};

PyObject *
tc_py_comm_reduce_scatter(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&reduce_scatter, self, cls, args, nargs, kwnames);
}

const char tc_py_reduce_scatter_v_doc[] =
    "reduce_scatter_v($self, /, output, input_list, op, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "Like reduce_scatter, with sizes that differ by rank: input_list[r] has as many\n"
    "elements as rank r's output.";

static bool
build_reduce_scatter_v(tc_py_issue *issue)
{
    return build_scatter_list(issue, false);
}

static const tc_py_operation reduce_scatter_v = {
    TC_OP_REDUCE_SCATTER_V,
    build_reduce_scatter_v,
    {"reduce_scatter_v",
     3,
     {TC_PY_output, TC_PY_input_list, TC_PY_op, TC_PY_async_op, TC_PY_hints,
      TC_PY_timeout}},
};

PyObject *
tc_py_comm_reduce_scatter_v(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&reduce_scatter_v, self, cls, args, nargs, kwnames);
}

const char tc_py_reduce_scatter_single_doc[] =
    "reduce_scatter_single($self, /, output, input, op, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "output becomes the reduction of the rank-th of size equal chunks of input.\n\n"
    "input has size times the elements of output; output may be this rank's own chunk\n"
    "of it.";

static bool
build_reduce_scatter_single(tc_py_issue *issue)
{
    tc_py_view output, input;

    if (!tc_py_take_tensor(issue, 0, &output) || !tc_py_take_tensor(issue, 1, &input) ||
        !tc_py_take_op(issue, 2) ||
        !tc_py_check_whole(issue, 1, input.count, 0, output.count)) {
        return false;
    }
    issue->call.out = output.data;
    issue->call.count = output.count;
    issue->call.in_blocks = tc_py_even_blocks(&input, output.count);
    return tc_py_check_call_overlap(issue);
}

static const tc_py_operation reduce_scatter_single = {
    TC_OP_REDUCE_SCATTER_SINGLE,
    build_reduce_scatter_single,
    {"reduce_scatter_single",
     3,
     {TC_PY_output, TC_PY_input, TC_PY_op, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_reduce_scatter_single(PyObject *self, PyTypeObject *cls,
                                 PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    return tc_py_issue_run(&reduce_scatter_single, self, cls, args, nargs, kwnames);
}
