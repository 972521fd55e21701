/* SPDX-License-Identifier: BSD-3-Clause */
/* From the arguments of an operation to its work: what the operations' files share. */
#ifndef TC_PYTHON_PYISSUE_H
#define TC_PYTHON_PYISSUE_H

#include "python/pyargs.h"

/* The methods of TorchComm that issue an operation. */
#define TC_PY_OPERATIONS(X) \
    X(send) \
    X(recv) \
    X(broadcast) \
    X(all_reduce) \
    X(reduce) \
    X(all_gather) \
    X(all_gather_v) \
    X(all_gather_single) \
    X(reduce_scatter) \
    X(reduce_scatter_v) \
    X(reduce_scatter_single) \
    X(all_to_all) \
    X(all_to_all_single) \
    X(all_to_all_v_single) \
    X(barrier) \
    X(scatter) \
    X(gather) \
    X(gather_single)

#define TC_PY_OPERATION_DECLARE(name) \
    extern const char tc_py_##name##_doc[]; \
    PyObject *tc_py_comm_##name(PyObject *self, PyTypeObject *cls, \
                                PyObject *const *args, Py_ssize_t nargs, \
                                PyObject *kwnames);
TC_PY_OPERATIONS(TC_PY_OPERATION_DECLARE)
#undef TC_PY_OPERATION_DECLARE

enum { TC_PY_INLINE_BLOCKS = 16 };

/* One block of memory a rank, of one list, tensor or split. */
typedef struct tc_py_blocks {
    PyObject *tensors; /* a tuple of the list's tensors, owned; NULL for one tensor */
    void **ptrs;
    uint64_t *counts;
    void *inline_ptrs[TC_PY_INLINE_BLOCKS];
    uint64_t inline_counts[TC_PY_INLINE_BLOCKS];
} tc_py_blocks;

/* A call on its way from Python to the core. */
typedef struct tc_py_issue {
    tc_py_state *state;
    tc_comm *comm;
    int32_t rank;
    int32_t size;
    const struct tc_py_operation *operation;
    PyObject *slots[TC_PY_MAX_PARAMS]; /* borrowed from the caller */
    tc_call call;
    uint64_t timeout_ns;
    uint64_t bytes; /* of all its buffers: decides whether the GIL is kept */
    tc_py_blocks in;
    tc_py_blocks out;
} tc_py_issue;

/* A row for an operation. `build` fills the call from the slots; the last three
 * parameters are always async_op, hints and timeout, and are read before it. */
typedef struct tc_py_operation {
    tc_op_kind kind;
    bool (*build)(tc_py_issue *issue);
    tc_py_params params;
} tc_py_operation;

/* The whole body of a method: binds, checks, builds, issues, waits if synchronous. */
PyObject *
tc_py_issue_run(const tc_py_operation *operation, PyObject *self, PyTypeObject *cls,
                PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* A call on its way into the core. */
typedef struct tc_py_issuing {
    tc_py_state *state;
    tc_comm *comm;
    const tc_call *call;
    uint64_t bytes;
    uint64_t timeout_ns;
    PyObject *(*make_owner)(void *ctx); /* what holds all tensors */
    /* Fills the call once more, for a hook may have given a tensor other memory. False
     * with an exception. */
    bool (*read_again)(void *ctx);
    void *ctx;
} tc_py_issuing;

/* The part behind the checks, for batches. */
PyObject *
tc_py_issue_call(const tc_py_issuing *issuing);

/* The name of parameter `i`. */
const char *
tc_py_slot_name(const tc_py_issue *issue, int i);

/* For `build`: each reads slot `i` and returns false with an exception set. The first
 * tensor of a call decides its dtype, all others must agree. */
bool
tc_py_take_tensor(tc_py_issue *issue, int i, tc_py_view *view_p);

bool
tc_py_take_root(tc_py_issue *issue, int i);

bool
tc_py_take_op(tc_py_issue *issue, int i);

/* A list of one tensor a rank, as pointers and counts in `blocks`. */
bool
tc_py_take_list(tc_py_issue *issue, int i, tc_py_blocks *blocks);

/* Splits `view` by the rows listed in slot `i`. */
bool
tc_py_take_splits(tc_py_issue *issue, int i, const tc_py_view *view,
                  const char *tensor_name, tc_py_blocks *blocks);

/* The core's form of what was taken. */
tc_blocks
tc_py_list_blocks(const tc_py_blocks *blocks);

/* Equal blocks one behind the other. */
static inline tc_blocks
tc_py_even_blocks(const tc_py_view *view, uint64_t count)
{
    return (tc_blocks){.base = view->data, .count = count};
}

/* Raises "<name> has <count> elements, expected <wanted>"; true where they agree. */
bool
tc_py_check_count(const tc_py_issue *issue, int i, Py_ssize_t index, uint64_t count,
                  uint64_t wanted);

/* The same for `size` blocks in one tensor: whole = size x part. */
bool
tc_py_check_whole(const tc_py_issue *issue, int i_whole, uint64_t whole, int i_part,
                  uint64_t part);

/* pysendrecv.c. "Cannot send to self" and the like. */
bool
tc_py_check_peer(tc_op_kind kind, int32_t peer, int32_t rank);

/* pyoverlap.c */

/* A range of memory and whose it is. */
typedef struct tc_py_range {
    const char *data;
    uint64_t bytes;
    bool written;
    int32_t block; /* one range, read and written as the same block, is legal */
} tc_py_range;

/* Refuses written ranges that touch another; sorts `ranges`. */
bool
tc_py_check_overlap(tc_py_range *ranges, size_t count);

/* The same for the buffers of the call as it is built. */
bool
tc_py_check_call_overlap(const tc_py_issue *issue);

#endif
