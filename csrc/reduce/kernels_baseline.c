/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels for what every x86-64, or any other CPU, runs. */
#include "reduce/kernels_body.h"

const tc_reduce_kernels tc_reduce_kernels_baseline = TC_REDUCE_KERNELS_INIT;
