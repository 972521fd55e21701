/* SPDX-License-Identifier: BSD-3-Clause */
/* Our own engine for CPU tensors: what `ncclx` is on a CPU device. */
#ifndef TC_NATIVE_NATIVE_H
#define TC_NATIVE_NATIVE_H

#include "torchcomms/backend.h"

const tc_backend *
tc_native_backend(void);

#endif
