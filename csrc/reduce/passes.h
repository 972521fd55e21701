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

/* A format that computes in float32. A code fills its `bits` low bits. */
typedef struct small_type {
    int bits;
    float (*widen)(uint32_t code);
    uint32_t (*narrow)(float value);
} small_type;

typedef struct small_kernel {
    const small_type *format;
    tc_widen_fn widen;
    tc_narrow_fn narrow;
    pass_fn pair; /* all three of the format */
    pass_fn mid; /* dst and a are float32, b of the format */
    bool average;
} small_kernel;

static const small_type type_f16 = {16, f32_of_f16, f16_of_f32};
static const small_type type_bf16 = {16, f32_of_bf16, bf16_of_f32};
static const small_type type_e4m3fn = {8, f32_of_e4m3fn, e4m3fn_of_f32};
static const small_type type_e5m2 = {8, f32_of_e5m2, e5m2_of_f32};
static const small_type type_e4m3fnuz = {8, f32_of_e4m3fnuz, e4m3fnuz_of_f32};
static const small_type type_e5m2fnuz = {8, f32_of_e5m2fnuz, e5m2fnuz_of_f32};

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

TC_INLINE float
load_small(const void *src, size_t i, const small_type *type)
{
    return type->widen(type->bits == 8 ? ((const u8 *)src)[i] : ((const u16 *)src)[i]);
}

TC_INLINE void
store_small(void *dst, size_t i, float value, const small_type *type)
{
    if (type->bits == 8) {
        ((u8 *)dst)[i] = (u8)type->narrow(value);
    } else {
        ((u16 *)dst)[i] = (u16)type->narrow(value);
    }
}

/* The element of two words that lies `shift` bits up, combined and in its place. */
TC_INLINE uint32_t
combine_lane(uint32_t x, uint32_t y, int shift, int n, const small_type *type,
             value_fn op)
{
    uint32_t mask = (1u << type->bits) - 1;
    float a = type->widen((x >> shift) & mask);
    float b = type->widen((y >> shift) & mask);

    return type->narrow(op(a, b, n)) << shift;
}

/* By words of 32 bits: to widen by shifts and to narrow by `or` spares the vector units
 * the shuffles between lanes of different width. */
TC_INLINE void
small_pair(void *dst, const void *a, const void *b, size_t count, int n,
           const small_type *type, value_fn op)
{
    u32 *d = dst;
    const u32 *x = a;
    const u32 *y = b;
    size_t words = count / (size_t)(32 / type->bits);

#pragma GCC ivdep
    for (size_t i = 0; i < words; i++) {
        uint32_t word = combine_lane(x[i], y[i], 0, n, type, op);

        if (type->bits == 8) {
            word |= combine_lane(x[i], y[i], 8, n, type, op);
            word |= combine_lane(x[i], y[i], 24, n, type, op);
        }
        d[i] = word | combine_lane(x[i], y[i], 16, n, type, op);
    }
    for (size_t i = words * (size_t)(32 / type->bits); i < count; i++) {
        store_small(dst, i, op(load_small(a, i, type), load_small(b, i, type), n),
                    type);
    }
}

/* dst and a are float32. */
TC_INLINE void
small_mid(void *dst, const void *a, const void *b, size_t count, const small_type *type,
          value_fn op)
{
    float *d = dst;
    const float *x = a;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        d[i] = op(x[i], load_small(b, i, type), 0);
    }
}

TC_INLINE void
small_widen(float *dst, const void *src, size_t count, const small_type *type)
{
#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        dst[i] = load_small(src, i, type);
    }
}

TC_INLINE void
small_narrow(void *dst, const float *src, size_t count, const small_type *type)
{
#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        store_small(dst, i, src[i], type);
    }
}

TC_INLINE void
small_scale(void *dst, const void *src, float factor, size_t count,
            const small_type *type)
{
#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        store_small(dst, i, load_small(src, i, type) * factor, type);
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
    size_t size = (size_t)kernel->format->bits / 8;

    if (n == 1) {
        copy_source(dst, srcs[0], count * size);
        return;
    }
    if (n == 2) {
        kernel->pair(dst, srcs[0], srcs[1], count, n);
        return;
    }
    for (size_t i = 0; i < count; i += block) {
        size_t part = count - i < block ? count - i : block;
        size_t at = i * size;

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
