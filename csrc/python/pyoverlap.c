/* SPDX-License-Identifier: BSD-3-Clause */
/* Refuses buffers of one call that share memory where it would corrupt the result. */
#include <stdlib.h>

#include "base/dtype.h"
#include "python/pyissue.h"

enum { INLINE_RANGES = 2 * TC_PY_INLINE_BLOCKS + 2 };

static int
compare(const void *a, const void *b)
{
    const tc_py_range *x = a, *y = b;

    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return x->block < y->block ? -1 : x->block > y->block;
}

/* Drops empty ranges and, of an input that is its own output, the input. */
static size_t
drop_legal(tc_py_range *ranges, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        tc_py_range *last = kept > 0 ? &ranges[kept - 1] : NULL;

        if (ranges[i].bytes == 0) {
            continue;
        }
        if (last != NULL && compare(last, &ranges[i]) == 0 &&
            last->written != ranges[i].written) {
            last->written = true;
            continue;
        }
        ranges[kept++] = ranges[i];
    }
    return kept;
}

/* Sweeps by start. What reaches farthest is kept apart for written ranges and for all,
 * since only a pair with a written one is wrong. */
bool
tc_py_check_overlap(tc_py_range *ranges, size_t count)
{
    const tc_py_range *any = NULL, *written = NULL;

    qsort(ranges, count, sizeof(ranges[0]), compare);
    count = drop_legal(ranges, count);
    for (size_t i = 0; i < count; i++) {
        const tc_py_range *r = &ranges[i];
        const tc_py_range *other = r->written ? any : written;

        if (other != NULL && r->data < other->data + other->bytes) {
            PyErr_Format(PyExc_RuntimeError,
                         "tensors of one call overlap in memory: %llu bytes at %p and "
                         "%llu bytes at %p",
                         (unsigned long long)other->bytes, (const void *)other->data,
                         (unsigned long long)r->bytes, (const void *)r->data);
            return false;
        }
        if (any == NULL || r->data + r->bytes > any->data + any->bytes) {
            any = r;
        }
        if (r->written &&
            (written == NULL || r->data + r->bytes > written->data + written->bytes)) {
            written = r;
        }
    }
    return true;
}

/* Only this rank's own block may be input and output at once. */
static size_t
add_blocks(const tc_py_issue *issue, const tc_blocks *blocks, bool written,
           tc_py_range *ranges)
{
    size_t elem = tc_dtype_size(issue->call.dtype);

    for (int32_t r = 0; r < issue->size; r++) {
        int32_t block = r == issue->rank || !written ? r : -1 - r;
        uint64_t bytes =
            blocks->counts != NULL ? blocks->counts[r] * elem : blocks->count * elem;
        const char *data = blocks->ptrs != NULL
                               ? blocks->ptrs[r]
                               : (const char *)blocks->base + bytes * (uint64_t)r;

        ranges[r] = (tc_py_range){data, bytes, written, block};
    }
    return (size_t)issue->size;
}

static bool
has_blocks(const tc_blocks *blocks)
{
    return blocks->base != NULL || blocks->ptrs != NULL;
}

bool
tc_py_check_call_overlap(const tc_py_issue *issue)
{
    const tc_call *call = &issue->call;
    tc_py_range inline_ranges[INLINE_RANGES];
    tc_py_range *ranges = inline_ranges;
    uint64_t bytes = call->count * tc_dtype_size(call->dtype);
    size_t n = 0;
    bool ok;

    if (issue->size > TC_PY_INLINE_BLOCKS) {
        ranges = malloc((2 * (size_t)issue->size + 2) * sizeof(ranges[0]));
        if (ranges == NULL) {
            PyErr_NoMemory();
            return false;
        }
    }
    /* The own block is the one a single tensor may share with a list. */
    if (call->in != NULL) {
        ranges[n++] = (tc_py_range){call->in, bytes, false, issue->rank};
    }
    if (call->out != NULL) {
        ranges[n++] = (tc_py_range){call->out, bytes, true, issue->rank};
    }
    if (has_blocks(&call->in_blocks)) {
        n += add_blocks(issue, &call->in_blocks, false, ranges + n);
    }
    if (has_blocks(&call->out_blocks)) {
        n += add_blocks(issue, &call->out_blocks, true, ranges + n);
    }
    ok = tc_py_check_overlap(ranges, n);
    if (ranges != inline_ranges) {
        free(ranges);
    }
    return ok;
}
