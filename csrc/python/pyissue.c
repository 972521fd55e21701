/* SPDX-License-Identifier: BSD-3-Clause */
/* The path every operation takes from Python into the core. */
#include "python/pyissue.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "base/error.h"
#include "python/pyhook.h"

/* Up to here a call is over sooner than the GIL could be given away and taken back. */
#define KEEP_GIL_BYTES 8192

const char *
tc_py_slot_name(const tc_py_issue *issue, int i)
{
    return tc_py_param_text(&issue->operation->params, i);
}

static tc_status
issue_without_gil(tc_comm *comm, const tc_call *call, uint64_t timeout_ns,
                  tc_work **work_p, tc_error *err)
{
    PyThreadState *thread = PyEval_SaveThread();
    tc_status status = tc_comm_issue(comm, call, timeout_ns, work_p, err);

    PyEval_RestoreThread(thread);
    return status;
}

/* The failure of an operation, which abort hooks hear of first. */
static PyObject *
raise_failure(tc_comm *comm, tc_status status, const tc_error *err)
{
    if (tc_comm_has_hooks(comm)) {
        tc_hooks_call_failed(comm, status);
    }
    return tc_py_raise(status, err);
}

/* Ends a call that the core has accepted but not finished. */
static PyObject *
finish_pending(const tc_py_issuing *i, tc_work *work, PyObject *owner)
{
    tc_error err = {0};
    tc_status status;

    if (i->call->async) {
        if (!tc_py_owner_set(i->state, work, owner)) {
            tc_py_wait_work(work, &err);
            tc_work_release(work);
            return PyErr_NoMemory();
        }
        return tc_py_work_wrap(i->state, work);
    }
    status = tc_py_wait_work(work, &err);
    /* Called away: the operation goes on without the caller and needs its tensors. */
    if (status == TC_INTERRUPTED) {
        tc_py_owner_set(i->state, work, owner);
    }
    tc_work_release(work);
    tc_py_garbage_check(i->state);
    return status == TC_OK ? Py_NewRef(i->state->done)
                           : raise_failure(i->comm, status, &err);
}

static PyObject *
issue_owned(const tc_py_issuing *i)
{
    tc_work *work;
    tc_error err;
    tc_status status;
    PyObject *owner, *result;

    tc_py_garbage_check(i->state);
    if (i->bytes <= KEEP_GIL_BYTES) {
        status = tc_comm_issue(i->comm, i->call, i->timeout_ns, &work, &err);
    } else {
        status = issue_without_gil(i->comm, i->call, i->timeout_ns, &work, &err);
    }
    if (status == TC_OK) {
        return Py_NewRef(i->state->done);
    }
    if (status != TC_PENDING) {
        return raise_failure(i->comm, status, &err);
    }
    owner = i->make_owner(i->ctx);
    if (owner == NULL) {
        /* Rather wait than let the buffers go while the core uses them. */
        tc_py_wait_work(work, &err);
        tc_work_release(work);
        return NULL;
    }
    result = finish_pending(i, work, owner);
    Py_DECREF(owner);
    return result;
}

/* The same between the hooks. A post-hook of a synchronous call runs when it has
 * succeeded. */
static PyObject *
issue_hooked(const tc_py_issuing *i, tc_py_subject *subject)
{
    tc_hook_event event = {.kind = i->call->kind,
                           .async = i->call->async,
                           .call = i->call,
                           .face = subject};
    tc_error err = {0};
    tc_status status = tc_py_hooks_begin(i->comm, &event, &err);

    if (status != TC_OK) {
        return tc_py_raise(status, &err);
    }
    if (!i->read_again(i->ctx)) {
        return NULL;
    }
    return tc_py_hooks_finish(i->state, i->comm, &event, issue_owned(i));
}

PyObject *
tc_py_issue_call(const tc_py_issuing *issuing)
{
    tc_py_subject subject = {0};

    return tc_comm_has_hooks(issuing->comm) ? issue_hooked(issuing, &subject)
                                            : issue_owned(issuing);
}

/* A tuple of all arguments, lists as the tuples that were made of them. */
static PyObject *
own_arguments(void *ctx)
{
    const tc_py_issue *issue = ctx;
    const tc_py_params *params = &issue->operation->params;
    int n = 0;
    PyObject *tuple;

    while (params->names[n] != TC_PY_NO_NAME) {
        n++;
    }
    tuple = PyTuple_New(n + 2);
    if (tuple == NULL) {
        return NULL;
    }
    for (int i = 0; i < n + 2; i++) {
        PyObject *item = i < n    ? issue->slots[i]
                         : i == n ? issue->in.tensors
                                  : issue->out.tensors;

        PyTuple_SetItem(tuple, i, Py_NewRef(item != NULL ? item : Py_None));
    }
    return tuple;
}

/* The arrays inside the blocks stay as they are: written before they are read. */
static void
reset_call(tc_py_issue *issue, bool async)
{
    issue->call = (tc_call){
        .kind = issue->operation->kind, .dtype = TC_DTYPE_COUNT, .async = async};
    issue->bytes = 0;
    issue->in.tensors = issue->out.tensors = NULL;
    issue->in.ptrs = issue->out.ptrs = NULL;
    issue->in.counts = issue->out.counts = NULL;
}

static void
begin(tc_py_issue *issue, const tc_py_operation *operation, PyObject *self,
      PyTypeObject *cls)
{
    issue->state = tc_py_state_of(cls);
    issue->comm = ((tc_py_comm *)self)->comm;
    issue->rank = tc_comm_rank(issue->comm);
    issue->size = tc_comm_size(issue->comm);
    issue->operation = operation;
    reset_call(issue, false);
}

static void
drop_blocks(tc_py_blocks *blocks)
{
    Py_XDECREF(blocks->tensors);
    if (blocks->ptrs != blocks->inline_ptrs) {
        free(blocks->ptrs);
    }
    if (blocks->counts != blocks->inline_counts) {
        free(blocks->counts);
    }
}

static bool
read_common(tc_py_issue *issue)
{
    int i = 0;

    while (issue->operation->params.names[i] != TC_PY_async_op) {
        i++;
    }
    return tc_py_to_bool(issue->slots[i], "async_op", &issue->call.async) &&
           tc_py_check_hints(issue->slots[i + 1]) &&
           tc_py_to_timeout(issue->state, issue->slots[i + 2], &issue->timeout_ns);
}

/* The parameters that a part may be, by operation. */
static const uint8_t part_names[][6] = {
    [TC_PY_PART_TENSOR] = {TC_PY_tensor},
    [TC_PY_PART_INPUT] = {TC_PY_input, TC_PY_input_list, TC_PY_input_tensor,
                          TC_PY_input_tensor_list, TC_PY_tensor},
    [TC_PY_PART_OUTPUT] = {TC_PY_output, TC_PY_output_tensor, TC_PY_output_tensor_list,
                           TC_PY_tensor_list},
    [TC_PY_PART_INPUT_SPLITS] = {TC_PY_input_split_sizes},
    [TC_PY_PART_OUTPUT_SPLITS] = {TC_PY_output_split_sizes},
    [TC_PY_PART_OP] = {TC_PY_op},
};

/* Where only the root has a list, others may have passed anything. */
static PyObject *
show_slot(PyObject *slot, bool list)
{
    if (!list) {
        return Py_NewRef(slot);
    }
    return PyList_Check(slot) || PyTuple_Check(slot) ? PySequence_List(slot) : NULL;
}

static PyObject *
show_part(void *ctx, tc_py_part part, bool list)
{
    const tc_py_issue *issue = ctx;
    const uint8_t *params = issue->operation->params.names;

    for (int i = 0; params[i] != TC_PY_NO_NAME; i++) {
        for (const uint8_t *name = part_names[part]; *name != TC_PY_NO_NAME; name++) {
            if (params[i] == *name) {
                return show_slot(issue->slots[i], list);
            }
        }
    }
    return NULL;
}

static bool
read_again(void *ctx)
{
    tc_py_issue *issue = ctx;

    drop_blocks(&issue->in);
    drop_blocks(&issue->out);
    issue->rank = tc_comm_rank(issue->comm);
    issue->size = tc_comm_size(issue->comm);
    reset_call(issue, issue->call.async);
    return issue->operation->build(issue);
}

PyObject *
tc_py_issue_run(const tc_py_operation *operation, PyObject *self, PyTypeObject *cls,
                PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    tc_py_issue issue;
    PyObject *result = NULL;

    begin(&issue, operation, self, cls);
    if (!tc_py_bind(issue.state, &operation->params, args, nargs, kwnames,
                    issue.slots)) {
        return NULL;
    }
    if (tc_py_check_configured(issue.comm) && read_common(&issue) &&
        operation->build(&issue)) {
        tc_py_issuing i = {issue.state,      issue.comm,    &issue.call, issue.bytes,
                           issue.timeout_ns, own_arguments, read_again,  &issue};

        if (tc_comm_has_hooks(issue.comm)) {
            tc_py_subject subject = {.get = show_part, .ctx = &issue};

            result = issue_hooked(&i, &subject);
        } else {
            result = issue_owned(&i);
        }
    }
    drop_blocks(&issue.in);
    drop_blocks(&issue.out);
    return result;
}

static bool
agree_dtype(tc_py_issue *issue, int i, Py_ssize_t index, PyObject *obj,
            const tc_py_view *view)
{
    if (tc_op_reduces(issue->call.kind) &&
        !tc_py_check_reducible(issue->state, obj, tc_py_slot_name(issue, i), view)) {
        return false;
    }
    if (issue->call.dtype == TC_DTYPE_COUNT) {
        issue->call.dtype = view->dtype;
    } else if (issue->call.dtype != view->dtype) {
        PyObject *place =
            index < 0 ? PyUnicode_FromString("") : PyUnicode_FromFormat("[%zd]", index);

        if (place != NULL) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s%U has dtype %s, but the others have %s",
                         tc_py_slot_name(issue, i), place, tc_dtype_name(view->dtype),
                         tc_dtype_name(issue->call.dtype));
            Py_DECREF(place);
        }
        return false;
    }
    issue->bytes += view->bytes;
    return true;
}

bool
tc_py_take_tensor(tc_py_issue *issue, int i, tc_py_view *view_p)
{
    return tc_py_view_tensor(issue->state, issue->comm, issue->slots[i],
                             tc_py_slot_name(issue, i), -1, view_p) &&
           agree_dtype(issue, i, -1, issue->slots[i], view_p);
}

bool
tc_py_take_root(tc_py_issue *issue, int i)
{
    return tc_py_to_rank(issue->slots[i], tc_py_slot_name(issue, i), issue->size,
                         &issue->call.root);
}

bool
tc_py_take_op(tc_py_issue *issue, int i)
{
    PyObject *obj = issue->slots[i];

    if (Py_TYPE(obj) != issue->state->redop_type) {
        return tc_py_refuse_type("op", "a torchcomms.ReduceOp", obj);
    }
    issue->call.redop = ((tc_py_redop *)obj)->op;
    issue->call.factor = ((tc_py_redop *)obj)->factor;
    return true;
}

/* Room for a pointer and a count a rank. */
static bool
reserve(tc_py_issue *issue, tc_py_blocks *blocks)
{
    size_t n = (size_t)issue->size;

    if (n <= TC_PY_INLINE_BLOCKS) {
        blocks->ptrs = blocks->inline_ptrs;
        blocks->counts = blocks->inline_counts;
        return true;
    }
    blocks->ptrs = malloc(n * sizeof(blocks->ptrs[0]));
    blocks->counts = malloc(n * sizeof(blocks->counts[0]));
    if (blocks->ptrs == NULL || blocks->counts == NULL) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

/* `obj` as a tuple with an element for each rank. A tensor is refused: as a sequence it
 * would be one of its rows. */
static PyObject *
take_sequence(tc_py_issue *issue, int i, const char *wanted)
{
    PyObject *obj = issue->slots[i];
    PyObject *tuple;

    if (!PyList_Check(obj) && !PyTuple_Check(obj)) {
        tc_py_refuse_type(tc_py_slot_name(issue, i), wanted, obj);
        return NULL;
    }
    tuple = PySequence_Tuple(obj);
    if (tuple != NULL && PyTuple_Size(tuple) != issue->size) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s has %zd entries, but the communicator has %d ranks",
                     tc_py_slot_name(issue, i), PyTuple_Size(tuple), (int)issue->size);
        Py_CLEAR(tuple);
    }
    return tuple;
}

bool
tc_py_take_list(tc_py_issue *issue, int i, tc_py_blocks *blocks)
{
    blocks->tensors = take_sequence(issue, i, "a list of tensors");
    if (blocks->tensors == NULL || !reserve(issue, blocks)) {
        return false;
    }
    for (int32_t r = 0; r < issue->size; r++) {
        PyObject *tensor = PyTuple_GetItem(blocks->tensors, r);
        tc_py_view view;

        if (!tc_py_view_tensor(issue->state, issue->comm, tensor,
                               tc_py_slot_name(issue, i), r, &view) ||
            !agree_dtype(issue, i, r, tensor, &view)) {
            return false;
        }
        blocks->ptrs[r] = view.data;
        blocks->counts[r] = view.count;
    }
    return true;
}

/* The rows of each rank, as counts; their sum in *sum_p. */
static bool
read_splits(tc_py_issue *issue, int i, PyObject *list, tc_py_blocks *blocks,
            unsigned long long *sum_p)
{
    *sum_p = 0;
    for (int32_t r = 0; r < issue->size; r++) {
        long long rows;

        if (!tc_py_to_int(PyTuple_GetItem(list, r), tc_py_slot_name(issue, i), &rows)) {
            return false;
        }
        if (rows < 0) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s[%d] must not be negative, but got %lld",
                         tc_py_slot_name(issue, i), (int)r, rows);
            return false;
        }
        blocks->counts[r] = (uint64_t)rows;
        /* Two such numbers never overflow the sum; a third is only added below it. */
        *sum_p = *sum_p > INT64_MAX ? *sum_p : *sum_p + (unsigned long long)rows;
    }
    return true;
}

bool
tc_py_take_splits(tc_py_issue *issue, int i, const tc_py_view *view,
                  const char *tensor_name, tc_py_blocks *blocks)
{
    PyObject *list = take_sequence(issue, i, "a list of int");
    uint64_t row = view->rows == 0 ? 0 : view->count / view->rows;
    char *at = view->data;
    unsigned long long sum = 0;
    bool ok;

    if (list == NULL) {
        return false;
    }
    ok = reserve(issue, blocks) && read_splits(issue, i, list, blocks, &sum);
    Py_DECREF(list);
    if (!ok) {
        return false;
    }
    if (sum > view->rows) {
        PyErr_Format(PyExc_RuntimeError, "%s sums to %llu, but %s has %llu rows",
                     tc_py_slot_name(issue, i), sum, tensor_name,
                     (unsigned long long)view->rows);
        return false;
    }
    for (int32_t r = 0; r < issue->size; r++) {
        blocks->counts[r] *= row;
        blocks->ptrs[r] = at;
        if (at != NULL) {
            at += blocks->counts[r] * tc_dtype_size(view->dtype);
        }
    }
    return true;
}

tc_blocks
tc_py_list_blocks(const tc_py_blocks *blocks)
{
    return (tc_blocks){.ptrs = blocks->ptrs, .counts = blocks->counts};
}

bool
tc_py_check_count(const tc_py_issue *issue, int i, Py_ssize_t index, uint64_t count,
                  uint64_t wanted)
{
    const char *name = tc_py_slot_name(issue, i);

    if (count == wanted) {
        return true;
    }
    if (index < 0) {
        PyErr_Format(PyExc_RuntimeError, "%s has %llu elements, expected %llu", name,
                     (unsigned long long)count, (unsigned long long)wanted);
    } else {
        PyErr_Format(PyExc_RuntimeError, "%s[%zd] has %llu elements, expected %llu",
                     name, index, (unsigned long long)count,
                     (unsigned long long)wanted);
    }
    return false;
}

bool
tc_py_check_whole(const tc_py_issue *issue, int i_whole, uint64_t whole, int i_part,
                  uint64_t part)
{
    uint64_t size = (uint64_t)issue->size;

    /* By division, since the product may not fit. */
    if (whole / size == part && whole % size == 0) {
        return true;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "%s has %llu elements, expected %llu: %d ranks with the %llu of %s",
                 tc_py_slot_name(issue, i_whole), (unsigned long long)whole,
                 (unsigned long long)(size * part), (int)issue->size,
                 (unsigned long long)part, tc_py_slot_name(issue, i_part));
    return false;
}
