/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables behind base/dtype.h, made from the lists of types.h. */
#include "base/dtype.h"

const uint8_t tc_dtype_sizes[TC_DTYPE_COUNT] = {
#define ROW(id, name, bytes) [TC_##id] = (bytes),
    TC_DTYPES(ROW)
#undef ROW
};

static const char *const dtypes[] = {
#define ROW(id, name, bytes) [TC_##id] = #name,
    TC_DTYPES(ROW)
#undef ROW
};

static const char *const redops[] = {
#define ROW(id) [TC_REDOP_##id] = #id,
    TC_REDOPS(ROW)
#undef ROW
};

static const char *const ops[] = {
#define ROW(id, name) [TC_OP_##id] = #name,
    TC_OPS(ROW)
#undef ROW
};

const tc_op_traits tc_op_traits_of[TC_OP_KIND_COUNT + 1] = {
    [TC_OP_SEND] = {TC_FORM_SEND, false, false},
    [TC_OP_RECV] = {TC_FORM_RECV, false, false},
    [TC_OP_BROADCAST] = {TC_FORM_TENSOR, true, false},
    [TC_OP_ALL_REDUCE] = {TC_FORM_TENSOR, false, true},
    [TC_OP_REDUCE] = {TC_FORM_TENSOR, true, true},
    [TC_OP_ALL_GATHER] = {TC_FORM_GATHER, false, false},
    [TC_OP_ALL_GATHER_V] = {TC_FORM_GATHER, false, false},
    [TC_OP_ALL_GATHER_SINGLE] = {TC_FORM_GATHER, false, false},
    [TC_OP_REDUCE_SCATTER] = {TC_FORM_SCATTER, false, true},
    [TC_OP_REDUCE_SCATTER_V] = {TC_FORM_SCATTER, false, true},
    [TC_OP_REDUCE_SCATTER_SINGLE] = {TC_FORM_SCATTER, false, true},
    [TC_OP_ALL_TO_ALL_SINGLE] = {TC_FORM_EXCHANGE, false, false},
    [TC_OP_ALL_TO_ALL_V_SINGLE] = {TC_FORM_EXCHANGE, false, false},
    [TC_OP_ALL_TO_ALL] = {TC_FORM_EXCHANGE, false, false},
    [TC_OP_SCATTER] = {TC_FORM_SCATTER, true, false},
    [TC_OP_GATHER] = {TC_FORM_GATHER, true, false},
    [TC_OP_GATHER_SINGLE] = {TC_FORM_GATHER, true, false},
    [TC_OP_BATCH] = {TC_FORM_BATCH, false, false},
};

const char *
tc_dtype_name(tc_dtype dtype)
{
    return (unsigned)dtype < TC_DTYPE_COUNT ? dtypes[dtype] : "?";
}

const char *
tc_redop_name(tc_redop op)
{
    return (unsigned)op < TC_REDOP_COUNT ? redops[op] : "?";
}

const char *
tc_op_name(tc_op_kind kind)
{
    return (unsigned)kind < TC_OP_KIND_COUNT ? ops[kind] : "?";
}
