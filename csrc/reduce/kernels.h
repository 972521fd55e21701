/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of reduction kernels that one instruction set provides. */
#ifndef TC_REDUCE_KERNELS_H
#define TC_REDUCE_KERNELS_H

#include "reduce/reduce.h"

typedef void (*tc_scale_fn)(void *dst, const void *src, double factor, size_t count);
/* float32 from a 16- or 8-bit float, exactly. */
typedef void (*tc_widen_fn)(float *dst, const void *src, size_t count);
/* Back, rounded to nearest even. */
typedef void (*tc_narrow_fn)(void *dst, const float *src, size_t count);

/* NULL where the dtype does not know the operation. Tests lay out the same struct in
 * Python. */
typedef struct tc_reduce_kernels {
    tc_reduce_fn reduce[TC_DTYPE_COUNT][TC_REDOP_COUNT];
    tc_scale_fn scale[TC_DTYPE_COUNT];
    tc_widen_fn widen[TC_DTYPE_COUNT];
    tc_narrow_fn narrow[TC_DTYPE_COUNT];
} tc_reduce_kernels;

enum { TC_ISA_BASELINE = 0, TC_ISA_AVX2 = 1, TC_ISA_AVX512 = 2, TC_ISA_COUNT };

extern const tc_reduce_kernels tc_reduce_kernels_baseline;
#if defined(__x86_64__)
extern const tc_reduce_kernels tc_reduce_kernels_avx2;
extern const tc_reduce_kernels tc_reduce_kernels_avx512;
#endif

/* The table of a level; NULL where this CPU cannot run it. */
const tc_reduce_kernels *
tc_reduce_kernels_at(int level);

#endif
