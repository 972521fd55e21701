/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels for AVX2 and F16C. */
#if defined(__x86_64__)

/* No FMA in the list and -ffp-contract=off: a contraction would change bits. */
#pragma GCC target("avx2,f16c")

#include "reduce/kernels_body.h"

const tc_reduce_kernels tc_reduce_kernels_avx2 = TC_REDUCE_KERNELS_INIT;

#else

typedef int tc_reduce_not_x86; /* ISO C wants a declaration in every file */

#endif
