/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables behind base/dtype.h, made from the lists of types.h. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
#define ROW(id, name, bytes) [TC_##id] = {#name, bytes},
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

size_t
tc_dtype_size(tc_dtype dtype)
{
    return (unsigned)dtype < TC_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *
tc_dtype_name(tc_dtype dtype)
{
    return (unsigned)dtype < TC_DTYPE_COUNT ? dtypes[dtype].name : "?";
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
