/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations that give each rank its own part: scatter and the all_to_alls. */
#include "base/dtype.h"
#include "python/pyissue.h"

const char tc_py_scatter_doc[] =
    "scatter($self, /, output_tensor, input_tensor_list, root, async_op=False, "
    "hints=None, timeout=None)\n--\n\n"
    "Rank r's output_tensor receives root's input_tensor_list[r].\n\n"
    "On root the list has a tensor for each rank, all with as many elements as\n"
    "output_tensor; other ranks pass anything, [] for one.";

static bool
build_scatter(tc_py_issue *issue)
{
    tc_py_view output;

    if (!tc_py_take_root(issue, 2) || !tc_py_take_tensor(issue, 0, &output)) {
        return false;
    }
    issue->call.out = output.data;
    issue->call.count = output.count;
    if (issue->call.root != issue->rank) {
        return true;
    }
    if (!tc_py_take_list(issue, 1, &issue->in)) {
        return false;
    }
    for (int32_t r = 0; r < issue->size; r++) {
        if (!tc_py_check_count(issue, 1, r, issue->in.counts[r], output.count)) {
            return false;
        }
    }
    issue->call.in_blocks = tc_py_list_blocks(&issue->in);
    return tc_py_check_call_overlap(issue);
}

static const tc_py_operation scatter = {
    TC_OP_SCATTER,
    build_scatter,
    {"scatter",
     3,
     {TC_PY_output_tensor, TC_PY_input_tensor_list, TC_PY_root, TC_PY_async_op,
      TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_scatter(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&scatter, self, cls, args, nargs, kwnames);
}

const char tc_py_all_to_all_doc[] =
    "all_to_all($self, /, output_tensor_list, input_tensor_list, async_op=False, "
    "hints=None, timeout=None)\n--\n\n"
    "output_tensor_list[r] receives what rank r has for this rank.\n\n"
    "Both lists have a tensor for each rank. Sizes may differ by pair: what rank s\n"
    "has at input_tensor_list[r] is as long as what rank r has at\n"
    "output_tensor_list[s].";

static bool
build_all_to_all(tc_py_issue *issue)
{
    if (!tc_py_take_list(issue, 0, &issue->out) ||
        !tc_py_take_list(issue, 1, &issue->in) ||
        !tc_py_check_count(issue, 1, issue->rank, issue->in.counts[issue->rank],
                           issue->out.counts[issue->rank])) {
        return false;
    }
    issue->call.in_blocks = tc_py_list_blocks(&issue->in);
    issue->call.out_blocks = tc_py_list_blocks(&issue->out);
    return tc_py_check_call_overlap(issue);
}

static const tc_py_operation all_to_all = {
    TC_OP_ALL_TO_ALL,
    build_all_to_all,
    {"all_to_all",
     2,
     {TC_PY_output_tensor_list, TC_PY_input_tensor_list, TC_PY_async_op, TC_PY_hints,
      TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_to_all(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_to_all, self, cls, args, nargs, kwnames);
}

const char tc_py_all_to_all_single_doc[] =
    "all_to_all_single($self, /, output, input, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "The r-th of size equal chunks of output receives this rank's chunk of rank r's\n"
    "input.\n\n"
    "Both have the same number of elements, a multiple of size.";

static bool
build_all_to_all_single(tc_py_issue *issue)
{
    tc_py_view output, input;
    uint64_t size = (uint64_t)issue->size;

    if (!tc_py_take_tensor(issue, 0, &output) || !tc_py_take_tensor(issue, 1, &input) ||
        !tc_py_check_count(issue, 0, -1, output.count, input.count)) {
        return false;
    }
    if (input.count % size != 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "input has %llu elements, which %d ranks do not divide evenly",
                     (unsigned long long)input.count, (int)issue->size);
        return false;
    }
    issue->call.in_blocks = tc_py_even_blocks(&input, input.count / size);
    issue->call.out_blocks = tc_py_even_blocks(&output, output.count / size);
    return tc_py_check_call_overlap(issue);
}

static const tc_py_operation all_to_all_single = {
    TC_OP_ALL_TO_ALL_SINGLE,
    build_all_to_all_single,
    {"all_to_all_single",
     2,
     {TC_PY_output, TC_PY_input, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_to_all_single(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_to_all_single, self, cls, args, nargs, kwnames);
}

const char tc_py_all_to_all_v_single_doc[] =
    "all_to_all_v_single($self, /, output, input, output_split_sizes, "
    "input_split_sizes, async_op=False, hints=None, timeout=None)\n--\n\n"
    "Like all_to_all_single, with chunks of any size.\n\n"
    "The split lists have the rows of dimension 0 for each rank, from the first row\n"
    "on; rows beyond their sum are left out. What rank s has for rank r at\n"
    "input_split_sizes[r] holds as many elements as rank r's output_split_sizes[s].";

static bool
build_all_to_all_v_single(tc_py_issue *issue)
{
    tc_py_view output, input;
    int32_t rank = issue->rank;

    if (!tc_py_take_tensor(issue, 0, &output) || !tc_py_take_tensor(issue, 1, &input) ||
        !tc_py_take_splits(issue, 2, &output, "output", &issue->out) ||
        !tc_py_take_splits(issue, 3, &input, "input", &issue->in)) {
        return false;
    }
    if (issue->in.counts[rank] != issue->out.counts[rank]) {
        PyErr_Format(
            PyExc_RuntimeError,
            "input_split_sizes[%d] means %llu elements, output_split_sizes[%d] "
            "%llu: they are the same block",
            (int)rank, (unsigned long long)issue->in.counts[rank], (int)rank,
            (unsigned long long)issue->out.counts[rank]);
        return false;
    }
    issue->call.in_blocks = tc_py_list_blocks(&issue->in);
    issue->call.out_blocks = tc_py_list_blocks(&issue->out);
    return tc_py_check_call_overlap(issue);
}

static const tc_py_operation all_to_all_v_single = {
    TC_OP_ALL_TO_ALL_V_SINGLE,
    build_all_to_all_v_single,
    {"all_to_all_v_single",
     4,
     {TC_PY_output, TC_PY_input, TC_PY_output_split_sizes, TC_PY_input_split_sizes,
      TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_to_all_v_single(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_to_all_v_single, self, cls, args, nargs, kwnames);
}
