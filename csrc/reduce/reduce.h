/* SPDX-License-Identifier: BSD-3-Clause */
/* Elementwise reduction of any number of buffers, with the same bits on every CPU. */
#ifndef TC_REDUCE_REDUCE_H
#define TC_REDUCE_REDUCE_H

#include "torchcomms/types.h"

/* dst[i] = srcs[0][i] op srcs[1][i] op ... op srcs[n-1][i], combined left to right, for
 * n >= 1 sources. `dst` may be one of the sources (exactly the same range), otherwise
 * nothing overlaps. No alignment is required. 16- and 8-bit floats (and complex32)
 * accumulate in float32 and are rounded to nearest even once, at the end. AVG divides
 * the sum by n (integers truncate toward zero). PREMUL_SUM is SUM: scaling is done
 * before, with tc_reduce_scale. Float MIN and MAX propagate NaN. */
typedef void (*tc_reduce_fn)(void *dst, const void *const *srcs, int n, size_t count);

/* The function for a pair on this CPU; refuses a pair without meaning with
 * TC_ERR_UNSUPPORTED and a text that names both. */
tc_status
tc_reduce_find(tc_dtype dtype, tc_redop op, tc_reduce_fn *fn_p, tc_error *err);

/* dst[i] = src[i] * factor in the arithmetic of the type (float32 for 16 and 8 bit
 * floats, one rounding); dst may equal src. Float and complex types only. */
tc_status
tc_reduce_scale(tc_dtype dtype, void *dst, const void *src, double factor, size_t count,
                tc_error *err);

/* "avx512", "avx2", "baseline": what tc_reduce_find chose from, "none" where the option
 * TORCHCOMM_ISA, which may lower it, is none of these (tc_reduce_find says so). */
const char *
tc_reduce_isa(void);

/* For tests: tc_reduce_find for one ISA level (0 baseline, 1 avx2, 2 avx512);
 * TC_ERR_UNSUPPORTED where this CPU cannot run it. */
tc_status
tc_reduce_find_isa(int level, tc_dtype dtype, tc_redop op, tc_reduce_fn *fn_p,
                   tc_error *err);

#endif
