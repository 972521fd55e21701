/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations that spread or collect: broadcast, the gathers, and barrier. */
#include "python/pyissue.h"

const char tc_py_broadcast_doc[] =
    "broadcast($self, /, tensor, root, async_op=False, hints=None, timeout=None)\n"
    "--\n\n"
    "Copies root's tensor to all ranks, in place.\n\n"
    "All ranks pass as many elements of the same dtype. Raises RuntimeError for a\n"
    "root that is no rank and for a tensor that is not contiguous or on another\n"
    "device.";

static bool
build_broadcast(tc_py_issue *issue)
{
    tc_py_view view;

    if (!tc_py_take_tensor(issue, 0, &view) || !tc_py_take_root(issue, 1)) {
        return false;
    }
    issue->call.in = issue->call.out = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation broadcast = {
    TC_OP_BROADCAST,
    build_broadcast,
    {"broadcast",
     2,
     {TC_PY_tensor, TC_PY_root, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_broadcast(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                     Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&broadcast, self, cls, args, nargs, kwnames);
}

const char tc_py_barrier_doc[] =
    "barrier($self, /, async_op=False, hints=None, timeout=None)\n--\n\n"
    "Returns, or completes, once every rank has called it.";

static bool
build_barrier(tc_py_issue *issue)
{
    issue->call.dtype = TC_UINT8;
    return true;
}

static const tc_py_operation barrier = {
    TC_OP_BARRIER,
    build_barrier,
    {"barrier", 0, {TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_barrier(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&barrier, self, cls, args, nargs, kwnames);
}

/* tensor_list of slot `list`, tensor of slot `one`: `even` wants all alike. */
static bool
build_gather_list(tc_py_issue *issue, int list, int one, bool even)
{
    tc_py_view view;

    if (!tc_py_take_tensor(issue, one, &view) ||
        !tc_py_take_list(issue, list, &issue->out)) {
        return false;
    }
    for (int32_t r = 0; r < issue->size; r++) {
        if ((even || r == issue->rank) &&
            !tc_py_check_count(issue, list, r, issue->out.counts[r], view.count)) {
            return false;
        }
    }
    issue->call.in = view.data;
    issue->call.count = view.count;
    issue->call.out_blocks = tc_py_list_blocks(&issue->out);
    return tc_py_check_call_overlap(issue);
}

/* output of slot 0 holds `size` inputs of slot 1. */
static bool
build_gather_whole(tc_py_issue *issue)
{
    tc_py_view output, input;

    if (!tc_py_take_tensor(issue, 0, &output) || !tc_py_take_tensor(issue, 1, &input) ||
        !tc_py_check_whole(issue, 0, output.count, 1, input.count)) {
        return false;
    }
    issue->call.in = input.data;
    issue->call.count = input.count;
    issue->call.out_blocks = tc_py_even_blocks(&output, input.count);
    return tc_py_check_call_overlap(issue);
}

const char tc_py_all_gather_doc[] =
    "all_gather($self, /, tensor_list, tensor, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "tensor_list[r] receives rank r's tensor, on every rank.\n\n"
    "tensor_list has a tensor for each rank, all with as many elements as tensor.";

static bool
build_all_gather(tc_py_issue *issue)
{
    return build_gather_list(issue, 0, 1, true);
}

static const tc_py_operation all_gather = {
    TC_OP_ALL_GATHER,
    build_all_gather,
    {"all_gather",
     2,
     {TC_PY_tensor_list, TC_PY_tensor, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_gather(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                      Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_gather, self, cls, args, nargs, kwnames);
}

const char tc_py_all_gather_v_doc[] =
    "all_gather_v($self, /, tensor_list, tensor, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "Like all_gather, with sizes that differ by rank: tensor_list[r] has as many\n"
    "elements as rank r's tensor.";

static bool
build_all_gather_v(tc_py_issue *issue)
{
    return build_gather_list(issue, 0, 1, false);
}

static const tc_py_operation all_gather_v = {
    TC_OP_ALL_GATHER_V,
    build_all_gather_v,
    {"all_gather_v",
     2,
     {TC_PY_tensor_list, TC_PY_tensor, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_gather_v(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                        Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_gather_v, self, cls, args, nargs, kwnames);
}

const char tc_py_all_gather_single_doc[] =
    "all_gather_single($self, /, output, input, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "output receives all ranks' inputs, in rank order.\n\n"
    "output has size times the elements of input; input may be this rank's own part\n"
    "of it.";

static const tc_py_operation all_gather_single = {
    TC_OP_ALL_GATHER_SINGLE,
    build_gather_whole,
    {"all_gather_single",
     2,
     {TC_PY_output, TC_PY_input, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_all_gather_single(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&all_gather_single, self, cls, args, nargs, kwnames);
}

const char tc_py_gather_doc[] =
    "gather($self, /, output_tensor_list, input_tensor, root, async_op=False, "
    "hints=None, timeout=None)\n--\n\n"
    "root's output_tensor_list[r] receives rank r's input_tensor.\n\n"
    "On root the list has a tensor for each rank, all with as many elements as\n"
    "input_tensor; other ranks pass anything, [] for one.";

static bool
build_gather(tc_py_issue *issue)
{
    tc_py_view view;

    if (!tc_py_take_root(issue, 2)) {
        return false;
    }
    if (issue->call.root == issue->rank) {
        return build_gather_list(issue, 0, 1, true);
    }
    if (!tc_py_take_tensor(issue, 1, &view)) {
        return false;
    }
    issue->call.in = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation gather = {
    TC_OP_GATHER,
    build_gather,
    {"gather",
     3,
     {TC_PY_output_tensor_list, TC_PY_input_tensor, TC_PY_root, TC_PY_async_op,
      TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_gather(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                  Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&gather, self, cls, args, nargs, kwnames);
}

const char tc_py_gather_single_doc[] =
    "gather_single($self, /, output, input, root, async_op=False, hints=None, "
    "timeout=None)\n--\n\n"
    "root's output receives all ranks' inputs, in rank order.\n\n"
    "On root output has size times the elements of input; on other ranks it is\n"
    "neither looked at nor written.";

static bool
build_gather_single(tc_py_issue *issue)
{
    tc_py_view view;

    if (!tc_py_take_root(issue, 2)) {
        return false;
    }
    if (issue->call.root == issue->rank) {
        return build_gather_whole(issue);
    }
    if (!tc_py_take_tensor(issue, 1, &view)) {
        return false;
    }
    issue->call.in = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation gather_single = {
    TC_OP_GATHER_SINGLE,
    build_gather_single,
    {"gather_single",
     3,
     {TC_PY_output, TC_PY_input, TC_PY_root, TC_PY_async_op, TC_PY_hints,
      TC_PY_timeout}},
};

PyObject *
tc_py_comm_gather_single(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&gather_single, self, cls, args, nargs, kwnames);
}
