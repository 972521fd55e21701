/* SPDX-License-Identifier: BSD-3-Clause */
/* send and recv. */
#include "python/pyissue.h"

bool
tc_py_check_peer(tc_op_kind kind, int32_t peer, int32_t rank)
{
    if (peer == rank) {
        PyErr_Format(PyExc_RuntimeError, "Cannot %s self (rank %d)",
                     kind == TC_OP_SEND ? "send to" : "recv from", (int)rank);
        return false;
    }
    return true;
}

static bool
take_peer(tc_py_issue *issue)
{
    return tc_py_take_root(issue, 1) &&
           tc_py_check_peer(issue->call.kind, issue->call.root, issue->rank);
}

const char tc_py_send_doc[] =
    "send($self, /, tensor, dst, async_op=False, hints=None, timeout=None)\n--\n\n"
    "Sends tensor to rank dst, which receives as many elements of the same dtype.\n\n"
    "Small messages are copied and the call returns at once, others when they are\n"
    "received. Raises RuntimeError for a dst that is no other rank.";

static bool
build_send(tc_py_issue *issue)
{
    tc_py_view view;

    if (!take_peer(issue) || !tc_py_take_tensor(issue, 0, &view)) {
        return false;
    }
    issue->call.in = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation send = {
    TC_OP_SEND,
    build_send,
    {"send", 2, {TC_PY_tensor, TC_PY_dst, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_send(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&send, self, cls, args, nargs, kwnames);
}

const char tc_py_recv_doc[] =
    "recv($self, /, tensor, src, async_op=False, hints=None, timeout=None)\n--\n\n"
    "Receives rank src's next message into tensor.\n\n"
    "Raises RuntimeError for a src that is no other rank, and when the message is not\n"
    "as long as tensor. A recv that times out fails alone.";

static bool
build_recv(tc_py_issue *issue)
{
    tc_py_view view;

    if (!take_peer(issue) || !tc_py_take_tensor(issue, 0, &view)) {
        return false;
    }
    issue->call.out = view.data;
    issue->call.count = view.count;
    return true;
}

static const tc_py_operation recv = {
    TC_OP_RECV,
    build_recv,
    {"recv", 2, {TC_PY_tensor, TC_PY_src, TC_PY_async_op, TC_PY_hints, TC_PY_timeout}},
};

PyObject *
tc_py_comm_recv(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                Py_ssize_t nargs, PyObject *kwnames)
{
    return tc_py_issue_run(&recv, self, cls, args, nargs, kwnames);
}
