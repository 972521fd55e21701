/* SPDX-License-Identifier: BSD-3-Clause */
/* Size and name of element types and reductions; names and forms of operations. */
#ifndef TC_BASE_DTYPE_H
#define TC_BASE_DTYPE_H

#include "torchcomms/types.h"

/* Bytes of an element by tc_dtype. */
extern const uint8_t tc_dtype_sizes[TC_DTYPE_COUNT];

/* Bytes of one element; 0 for an unknown number. */
static inline size_t
tc_dtype_size(tc_dtype dtype)
{
    return (unsigned)dtype < TC_DTYPE_COUNT ? tc_dtype_sizes[dtype] : 0;
}

/* torch's name, "float32"; "?" for an unknown number. */
const char *
tc_dtype_name(tc_dtype dtype);

/* "SUM"; "?" for an unknown number. */
const char *
tc_redop_name(tc_redop op);

/* "all_reduce"; "?" for an unknown number. */
const char *
tc_op_name(tc_op_kind kind);

/* Which buffers an operation has. */
typedef enum tc_op_form {
    TC_FORM_NONE, /* none: barrier, and what is no operation to issue */
    TC_FORM_SEND, /* in */
    TC_FORM_RECV, /* out */
    TC_FORM_TENSOR, /* in and out, of the same count */
    TC_FORM_GATHER, /* in; a block of every rank out */
    TC_FORM_SCATTER, /* a block for every rank in; out */
    TC_FORM_EXCHANGE, /* a block for every rank in, one of every rank out */
    TC_FORM_BATCH,
} tc_op_form;

typedef struct tc_op_traits {
    uint8_t form; /* tc_op_form */
    bool rooted;
    bool reduces;
} tc_op_traits;

/* By tc_op_kind; one more for every number that is none. */
extern const tc_op_traits tc_op_traits_of[TC_OP_KIND_COUNT + 1];

static inline const tc_op_traits *
tc_op_get_traits(tc_op_kind kind)
{
    unsigned index = (unsigned)kind < TC_OP_KIND_COUNT ? kind : TC_OP_KIND_COUNT;

    return &tc_op_traits_of[index];
}

static inline tc_op_form
tc_op_get_form(tc_op_kind kind)
{
    return (tc_op_form)tc_op_get_traits(kind)->form;
}

/* Whether it has a root: then only the root has the blocks. */
static inline bool
tc_op_is_rooted(tc_op_kind kind)
{
    return tc_op_get_traits(kind)->rooted;
}

/* Whether it reduces, so that `redop` means something. */
static inline bool
tc_op_reduces(tc_op_kind kind)
{
    return tc_op_get_traits(kind)->reduces;
}

#endif
