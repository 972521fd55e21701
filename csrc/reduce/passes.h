/* SPDX-License-Identifier: BSD-3-Clause */
/* Loops that combine two buffers, and the blocks that make n sources of them. */
#ifndef TC_REDUCE_PASSES_H
#define TC_REDUCE_PASSES_H

#include <string.h>

#include "reduce/elements_float.h"
#include "reduce/elements_order.h"
#include "reduce/f16c.h"
#include "reduce/kernels.h"

/* Accumulators of one block: with as many bytes of a source they stay in L1. */
#define TC_BLOCK_BYTES 8192

/* dst[i] = a[i] op b[i] for one of `n` sources; dst may be a or b. */
typedef void (*pass_fn)(void *dst, const void *a, const void *b, size_t count, int n);
typedef void (*element_fn)(void *d, const void *a, const void *b, int n);
typedef float (*value_fn)(float a, float b, int n);

/* A format that computes in float32. */
typedef struct small_type {
    size_t size;
    float (*load)(const void *p);
    void (*store)(void *p, float value);
} small_type;

typedef struct small_kernel {
    const small_type *format;
    tc_widen_fn widen;
    tc_narrow_fn narrow;
    pass_fn pair; /* all three of the format */
    pass_fn mid;  /* dst and a are float32, b of the format */
    bool average;
} small_kernel;

static const small_type type_f16 = {2, load_f16, store_f16};
static const small_type type_bf16 = {2, load_bf16, store_bf16};
static const small_type type_e4m3fn = {1, load_e4m3fn, store_e4m3fn};
static const small_type type_e5m2 = {1, load_e5m2, store_e5m2};
static const small_type type_e4m3fnuz = {1, load_e4m3fnuz, store_e4m3fnuz};
static const small_type type_e5m2fnuz = {1, load_e5m2fnuz, store_e5m2fnuz};

/* In all loops `ivdep` holds because buffers are the same or do not overlap. */
TC_INLINE void
native_pass(void *dst, const void *a, const void *b, size_t count, int n, size_t size,
            element_fn op)
{
    char *d = dst;
    const char *x = a;
    const char *y = b;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        op(d + i * size, x + i * size, y + i * size, n);
    }
}

TC_INLINE void
small_pair(void *dst, const void *a, const void *b, size_t count, int n,
           const small_type *type, value_fn op)
{
    char *d = dst;
    const char *x = a;
    const char *y = b;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        float value =
            op(type->load(x + i * type->size), type->load(y + i * type->size), n);

        type->store(d + i * type->size, value);
    }
}

TC_INLINE void
small_mid(void *dst, const void *a, const void *b, size_t count,
          const small_type *type, value_fn op)
{
    float *d = dst;
    const float *x = a;
    const char *y = b;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        d[i] = op(x[i], type->load(y + i * type->size), 0);
    }
}

TC_INLINE void
small_widen(float *dst, const void *src, size_t count, const small_type *type)
{
    const char *s = src;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        dst[i] = type->load(s + i * type->size);
    }
}

TC_INLINE void
small_narrow(void *dst, const float *src, size_t count, const small_type *type)
{
    char *d = dst;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        type->store(d + i * type->size, src[i]);
    }
}

TC_INLINE void
small_scale(void *dst, const void *src, float factor, size_t count,
            const small_type *type)
{
    char *d = dst;
    const char *s = src;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        type->store(d + i * type->size, type->load(s + i * type->size) * factor);
    }
}

static inline void
copy_source(void *dst, const void *src, size_t bytes)
{
    if (dst != src && bytes != 0) {
        memcpy(dst, src, bytes);
    }
}

/* `dst` may be any of the sources, so a block is written when all of them are read. */
static inline void
reduce_native(void *dst, const void *const *srcs, int n, size_t count, size_t size,
              pass_fn mid, pass_fn last)
{
    _Alignas(64) unsigned char acc[TC_BLOCK_BYTES];
    size_t block = TC_BLOCK_BYTES / size;

    if (n == 1) {
        copy_source(dst, srcs[0], count * size);
        return;
    }
    if (n == 2) {
        last(dst, srcs[0], srcs[1], count, n);
        return;
    }
    for (size_t i = 0; i < count; i += block) {
        size_t part = count - i < block ? count - i : block;
        size_t at = i * size;

        mid(acc, (const char *)srcs[0] + at, (const char *)srcs[1] + at, part, n);
        for (int k = 2; k < n - 1; k++) {
            mid(acc, acc, (const char *)srcs[k] + at, part, n);
        }
        last((char *)dst + at, acc, (const char *)srcs[n - 1] + at, part, n);
    }
}

static inline void
divide_block(float *acc, size_t count, int n)
{
    for (size_t i = 0; i < count; i++) {
        acc[i] = acc[i] / (float)n;
    }
}

static inline void
reduce_small(void *dst, const void *const *srcs, int n, size_t count,
             const small_kernel *kernel)
{
    _Alignas(64) float acc[TC_BLOCK_BYTES / sizeof(float)];
    size_t block = TC_BLOCK_BYTES / sizeof(float);

    if (n == 1) {
        copy_source(dst, srcs[0], count * kernel->format->size);
        return;
    }
    if (n == 2) {
        kernel->pair(dst, srcs[0], srcs[1], count, n);
        return;
    }
    for (size_t i = 0; i < count; i += block) {
        size_t part = count - i < block ? count - i : block;
        size_t at = i * kernel->format->size;

        kernel->widen(acc, (const char *)srcs[0] + at, part);
        for (int k = 1; k < n; k++) {
            kernel->mid(acc, acc, (const char *)srcs[k] + at, part, n);
        }
        if (kernel->average) {
            divide_block(acc, part, n);
        }
        kernel->narrow((char *)dst + at, acc, part);
    }
}

#endif
