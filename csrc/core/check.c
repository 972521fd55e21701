/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be told to be wrong about a call without any peer. */
#include "base/dtype.h"
#include "base/error.h"
#include "core/object.h"

static tc_status
check_rank(const char *name, int32_t value, int32_t size, tc_error *err)
{
    if (value < 0 || value >= size) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "%s must be in range [0, %d), but got %d", name, size,
                            value);
    }
    return TC_OK;
}

static tc_status
check_peer(tc_op_kind kind, int32_t peer, int32_t rank, int32_t size, tc_error *err)
{
    bool send = kind == TC_OP_SEND;

    if (!send && peer == TC_ANY_SOURCE) {
        return TC_OK;
    }
    TC_TRY(check_rank(send ? "dst" : "src", peer, size, err));
    if (peer == rank) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT, "Cannot %s self (rank %d)",
                            send ? "send to" : "recv from", rank);
    }
    return TC_OK;
}

static tc_status
check_buffer(const char *name, const void *buf, tc_dtype dtype, uint64_t count,
             tc_error *err)
{
    size_t elem = tc_dtype_size(dtype);

    if (elem == 0) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT, "dtype number %d is unknown",
                            (int)dtype);
    }
    if (count > (uint64_t)INT64_MAX / elem) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "%s of %llu elements of %zu bytes exceeds 2^63 bytes", name,
                            (unsigned long long)count, elem);
    }
    if (buf == NULL && count > 0) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "%s is null but has %llu elements", name,
                            (unsigned long long)count);
    }
    return TC_OK;
}

static tc_status
check_blocks(const char *name, const tc_blocks *blocks, tc_dtype dtype, int32_t size,
             tc_error *err)
{
    if (blocks->ptrs == NULL) {
        uint64_t count = blocks->counts != NULL ? 0 : blocks->count;

        if (blocks->counts != NULL) {
            return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                                "%s has counts but no pointers", name);
        }
        if (count > (uint64_t)INT64_MAX / (uint64_t)size) {
            return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                                "%s of %llu elements for each of %d ranks is too large",
                                name, (unsigned long long)count, size);
        }
        return check_buffer(name, blocks->base, dtype, count * (uint64_t)size, err);
    }
    for (int32_t r = 0; r < size; r++) {
        uint64_t count = blocks->counts != NULL ? blocks->counts[r] : blocks->count;

        TC_TRY(check_buffer(name, blocks->ptrs[r], dtype, count, err));
    }
    return TC_OK;
}

static tc_status
check_batch(const tc_call *call, int32_t rank, int32_t size, tc_error *err)
{
    if (call->batch_count == 0) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "Cannot issue empty batch operation");
    }
    for (uint64_t i = 0; i < call->batch_count; i++) {
        const tc_p2p *p = &call->batch[i];

        if (p->kind != TC_OP_SEND && p->kind != TC_OP_RECV) {
            return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                                "batch entry %llu is %s, not send or recv",
                                (unsigned long long)i, tc_op_name(p->kind));
        }
        TC_TRY(check_peer(p->kind, p->peer, rank, size, err));
        TC_TRY(check_buffer("tensor", p->buf, p->dtype, p->count, err));
    }
    return TC_OK;
}

static tc_status
check_redop(const tc_call *call, tc_error *err)
{
    if ((unsigned)call->redop >= TC_REDOP_COUNT) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "reduce op number %d is unknown", (int)call->redop);
    }
    return TC_OK;
}

/* Operations whose blocks are all like the rank's own buffer. */
static bool
is_even(tc_op_kind kind)
{
    return kind == TC_OP_ALL_GATHER || kind == TC_OP_ALL_GATHER_SINGLE ||
           kind == TC_OP_REDUCE_SCATTER || kind == TC_OP_REDUCE_SCATTER_SINGLE;
}

static tc_status
check_even(const char *name, const tc_call *call, const tc_blocks *blocks, int32_t size,
           tc_error *err)
{
    for (int32_t r = 0; is_even(call->kind) && r < size; r++) {
        uint64_t count = blocks->counts != NULL ? blocks->counts[r] : blocks->count;

        if (count != call->count) {
            return tc_error_set(
                err, TC_ERR_INVALID_ARGUMENT, "%s[%d] has %llu elements, expected %llu",
                name, r, (unsigned long long)count, (unsigned long long)call->count);
        }
    }
    return TC_OK;
}

/* Of a rooted operation only the root has the blocks. */
static tc_status
check_gather(const tc_call *call, bool has_blocks, int32_t size, tc_error *err)
{
    TC_TRY(check_buffer("input", call->in, call->dtype, call->count, err));
    TC_TRY(check_even("output", call, &call->out_blocks, size, err));
    return has_blocks
               ? check_blocks("output", &call->out_blocks, call->dtype, size, err)
               : TC_OK;
}

static tc_status
check_scatter(const tc_call *call, bool has_blocks, int32_t size, tc_error *err)
{
    TC_TRY(check_buffer("output", call->out, call->dtype, call->count, err));
    TC_TRY(check_even("input", call, &call->in_blocks, size, err));
    return has_blocks ? check_blocks("input", &call->in_blocks, call->dtype, size, err)
                      : TC_OK;
}

static tc_status
check_buffers(const tc_call *call, int32_t rank, int32_t size, tc_error *err)
{
    bool has_blocks = !tc_op_is_rooted(call->kind) || call->root == rank;

    switch (tc_op_get_form(call->kind)) {
    case TC_FORM_SEND:
        TC_TRY(check_peer(call->kind, call->root, rank, size, err));
        return check_buffer("tensor", call->in, call->dtype, call->count, err);
    case TC_FORM_RECV:
        TC_TRY(check_peer(call->kind, call->root, rank, size, err));
        return check_buffer("tensor", call->out, call->dtype, call->count, err);
    case TC_FORM_TENSOR:
        TC_TRY(check_buffer("tensor", call->in, call->dtype, call->count, err));
        return check_buffer("tensor", call->out, call->dtype, call->count, err);
    case TC_FORM_GATHER:
        return check_gather(call, has_blocks, size, err);
    case TC_FORM_SCATTER:
        return check_scatter(call, has_blocks, size, err);
    case TC_FORM_EXCHANGE:
        TC_TRY(check_blocks("input", &call->in_blocks, call->dtype, size, err));
        return check_blocks("output", &call->out_blocks, call->dtype, size, err);
    case TC_FORM_BATCH:
        return check_batch(call, rank, size, err);
    default:
        return TC_OK;
    }
}

tc_status
tc_call_check(const tc_call *call, int32_t rank, int32_t size, tc_error *err)
{
    if (tc_op_get_form(call->kind) == TC_FORM_NONE && call->kind != TC_OP_BARRIER) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED, "%s is not an operation to issue",
                            tc_op_name(call->kind));
    }
    if (tc_op_reduces(call->kind)) {
        TC_TRY(check_redop(call, err));
    }
    if (tc_op_is_rooted(call->kind)) {
        TC_TRY(check_rank("root", call->root, size, err));
    }
    return check_buffers(call, rank, size, err);
}

tc_status
tc_split_check(const tc_split *split, int32_t rank, int32_t size, int32_t *child_rank_p,
               tc_error *err)
{
    int32_t mine = -1;

    for (int32_t i = 0; i < split->rank_count; i++) {
        TC_TRY(check_rank("rank", split->ranks[i], size, err));
        for (int32_t j = 0; j < i; j++) {
            if (split->ranks[j] == split->ranks[i]) {
                return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                                    "ranks[%d] and ranks[%d] are both %d", j, i,
                                    split->ranks[i]);
            }
        }
        mine = split->ranks[i] == rank ? i : mine;
    }
    if (split->rank_count > 0 && mine < 0) {
        return tc_error_set(
            err, TC_ERR_INVALID_ARGUMENT,
            "Current rank %d is not included in the provided ranks list", rank);
    }
    *child_rank_p = mine;
    return TC_OK;
}
