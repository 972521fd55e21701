/* SPDX-License-Identifier: BSD-3-Clause */
/* Size and name of element types, reductions and operations. */
#ifndef TC_BASE_DTYPE_H
#define TC_BASE_DTYPE_H

#include "torchcomms/types.h"

/* Bytes of one element; 0 for an unknown number. */
size_t
tc_dtype_size(tc_dtype dtype);

/* torch's name, "float32"; "?" for an unknown number. */
const char *
tc_dtype_name(tc_dtype dtype);

/* "SUM"; "?" for an unknown number. */
const char *
tc_redop_name(tc_redop op);

/* "all_reduce"; "?" for an unknown number. */
const char *
tc_op_name(tc_op_kind kind);

#endif
