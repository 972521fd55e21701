/* SPDX-License-Identifier: BSD-3-Clause */
/* The reduction kernels as a shared library, for the comparison with torch. */
#include <string.h>

#include "base/dtype.h"
#include "reduce/kernels.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int
probe_dtype(const char *name);
EXPORT int
probe_redop(const char *name);
EXPORT int
probe_runs(int level);
EXPORT int
probe_reduce(int level, int dtype, int op, void *dst, const void *const *srcs, int n,
             size_t count);
EXPORT void
probe_scale(int level, int dtype, void *dst, const void *src, double factor,
            size_t count);
EXPORT void
probe_widen(int level, int dtype, float *dst, const void *src, size_t count);
EXPORT void
probe_narrow(int level, int dtype, void *dst, const float *src, size_t count);

int
probe_dtype(const char *name)
{
    int dtype = 0;

    while (dtype < TC_DTYPE_COUNT &&
           strcmp(tc_dtype_name((tc_dtype)dtype), name) != 0) {
        dtype++;
    }
    return dtype < TC_DTYPE_COUNT ? dtype : -1;
}

int
probe_redop(const char *name)
{
    int op = 0;

    while (op < TC_REDOP_COUNT && strcmp(tc_redop_name((tc_redop)op), name) != 0) {
        op++;
    }
    return op < TC_REDOP_COUNT ? op : -1;
}

int
probe_runs(int level)
{
    return tc_reduce_kernels_at(level) != NULL;
}

int
probe_reduce(int level, int dtype, int op, void *dst, const void *const *srcs, int n,
             size_t count)
{
    tc_reduce_fn fn;
    tc_status status =
        tc_reduce_find_isa(level, (tc_dtype)dtype, (tc_redop)op, &fn, NULL);

    if (status == TC_OK) {
        fn(dst, srcs, n, count);
    }
    return (int)status;
}

void
probe_scale(int level, int dtype, void *dst, const void *src, double factor,
            size_t count)
{
    tc_reduce_kernels_at(level)->scale[dtype](dst, src, factor, count);
}

void
probe_widen(int level, int dtype, float *dst, const void *src, size_t count)
{
    tc_reduce_kernels_at(level)->widen[dtype](dst, src, count);
}

void
probe_narrow(int level, int dtype, void *dst, const float *src, size_t count)
{
    tc_reduce_kernels_at(level)->narrow[dtype](dst, src, count);
}
