/* SPDX-License-Identifier: BSD-3-Clause */
/* All kernels, compiled by each file that includes this for its instruction set. */
#ifndef TC_REDUCE_KERNELS_BODY_H
#define TC_REDUCE_KERNELS_BODY_H

#include "reduce/kernel_rows.h"
#include "reduce/passes.h"

#define DEFINE_PASS(op, size) \
    static void pass_##op(void *dst, const void *a, const void *b, size_t count, \
                          int n) \
    { \
        native_pass(dst, a, b, count, n, size, op); \
    }
NATIVE_PASSES(DEFINE_PASS)

/* Two sources are the common case, and a constant divisor is much cheaper. */
#define DEFINE_AVERAGE_PASS(op, size) \
    static void pass_##op(void *dst, const void *a, const void *b, size_t count, \
                          int n) \
    { \
        if (n == 2) { \
            native_pass(dst, a, b, count, 2, size, op); \
        } else { \
            native_pass(dst, a, b, count, n, size, op); \
        } \
    }
AVERAGE_PASSES(DEFINE_AVERAGE_PASS)

#define DEFINE_NATIVE(id, op, units, size, mid, last) \
    static void reduce_##id##_##op(void *dst, const void *const *srcs, int n, \
                                   size_t count) \
    { \
        reduce_native(dst, srcs, n, count * (units), size, pass_##mid, pass_##last); \
    }
NATIVE_KERNELS(DEFINE_NATIVE)

#define DEFINE_PAIR(type, op) \
    static void pair_##type##_##op(void *dst, const void *a, const void *b, \
                                   size_t count, int n) \
    { \
        small_pair(dst, a, b, count, n, &type_##type, op); \
    }
#define DEFINE_AVERAGE_PAIR(type) \
    static void pair_##type##_avg(void *dst, const void *a, const void *b, \
                                  size_t count, int n) \
    { \
        (void)n; \
        small_pair(dst, a, b, count, 2, &type_##type, avg); \
    }
#define DEFINE_MID(type, op) \
    static void mid_##type##_##op(void *dst, const void *a, const void *b, \
                                  size_t count, int n) \
    { \
        (void)n; \
        small_mid(dst, a, b, count, &type_##type, op); \
    }
#define DEFINE_CONVERSIONS(type) \
    static void widen_##type(float *dst, const void *src, size_t count) \
    { \
        small_widen(dst, src, count, &type_##type); \
    } \
    static void narrow_##type(void *dst, const float *src, size_t count) \
    { \
        small_narrow(dst, src, count, &type_##type); \
    }
#define DEFINE_SMALL_PASSES(id, type) \
    DEFINE_CONVERSIONS(type) \
    DEFINE_PAIR(type, add) \
    DEFINE_MID(type, add) \
    DEFINE_PAIR(type, mul) \
    DEFINE_MID(type, mul) \
    DEFINE_PAIR(type, min) \
    DEFINE_MID(type, min) \
    DEFINE_PAIR(type, max) \
    DEFINE_MID(type, max) \
    DEFINE_AVERAGE_PAIR(type)
PLAIN_SMALL_TYPES(DEFINE_SMALL_PASSES)

#if defined(__F16C__) && defined(__AVX2__)
#define DEFINE_F16C_PASSES(op) \
    static void pair_f16_##op(void *dst, const void *a, const void *b, size_t count, \
                              int n) \
    { \
        f16c_loop(dst, a, b, count, n, &f16c_half, f16c_##op); \
    } \
    static void mid_f16_##op(void *dst, const void *a, const void *b, size_t count, \
                             int n) \
    { \
        f16c_loop(dst, a, b, count, n, &f16c_single, f16c_##op); \
    }
DEFINE_F16C_PASSES(add)
DEFINE_F16C_PASSES(mul)
DEFINE_F16C_PASSES(min)
DEFINE_F16C_PASSES(max)

static void
pair_f16_avg(void *dst, const void *a, const void *b, size_t count, int n)
{
    (void)n;
    f16c_loop(dst, a, b, count, 2, &f16c_half, f16c_avg);
}

static void
widen_f16(float *dst, const void *src, size_t count)
{
    f16c_convert(dst, src, count, &f16c_single, &f16c_half);
}

static void
narrow_f16(void *dst, const float *src, size_t count)
{
    f16c_convert(dst, src, count, &f16c_half, &f16c_single);
}
#else
DEFINE_SMALL_PASSES(FLOAT16, f16)
#endif

/* complex32, counted in real numbers. */
static void
pair_f16_complex(void *dst, const void *a, const void *b, size_t count, int n)
{
    u32 *d = dst;
    const u32 *x = a;
    const u32 *y = b;

    (void)n;
#pragma GCC ivdep
    for (size_t i = 0; i < count / 2; i++) {
        float re = f32_of_f16(x[i] & 0xffff);
        float im = f32_of_f16(x[i] >> 16);
        float other_re = f32_of_f16(y[i] & 0xffff);
        float other_im = f32_of_f16(y[i] >> 16);

        d[i] = f16_of_f32(minus_f32(re * other_re, im * other_im)) |
               f16_of_f32(re * other_im + im * other_re) << 16;
    }
}

static void
mid_f16_complex(void *dst, const void *a, const void *b, size_t count, int n)
{
    float *d = dst;
    const float *x = a;
    const u32 *y = b;

    (void)n;
#pragma GCC ivdep
    for (size_t i = 0; i < count / 2; i++) {
        float re = x[2 * i];
        float im = x[2 * i + 1];
        float other_re = f32_of_f16(y[i] & 0xffff);
        float other_im = f32_of_f16(y[i] >> 16);

        d[2 * i] = minus_f32(re * other_re, im * other_im);
        d[2 * i + 1] = re * other_im + im * other_re;
    }
}

#define DEFINE_SMALL(id, op, type, units, pair_op, mid_op) \
    static void reduce_##id##_##op(void *dst, const void *const *srcs, int n, \
                                   size_t count) \
    { \
        static const small_kernel kernel = { \
            .format = &type_##type, \
            .widen = widen_##type, \
            .narrow = narrow_##type, \
            .pair = pair_##type##_##pair_op, \
            .mid = mid_##type##_##mid_op, \
            .average = TC_REDOP_##op == TC_REDOP_AVG, \
        }; \
        reduce_small(dst, srcs, n, count * (units), &kernel); \
    }
SMALL_KERNELS(DEFINE_SMALL)

/* Scaling of complex numbers goes by real numbers. */
static void
scale_f32(void *dst, const void *src, double factor, size_t count)
{
    f32 *d = dst;
    const f32 *s = src;
    float narrow = (float)factor;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        d[i] = s[i] * narrow;
    }
}

static void
scale_f64(void *dst, const void *src, double factor, size_t count)
{
    f64 *d = dst;
    const f64 *s = src;

#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        d[i] = s[i] * factor;
    }
}

static void
scale_c64(void *dst, const void *src, double factor, size_t count)
{
    scale_f32(dst, src, factor, 2 * count);
}

static void
scale_c128(void *dst, const void *src, double factor, size_t count)
{
    scale_f64(dst, src, factor, 2 * count);
}

#define DEFINE_SCALE(id, type) \
    static void scale_##type(void *dst, const void *src, double factor, size_t count) \
    { \
        small_scale(dst, src, (float)factor, count, &type_##type); \
    }
SMALL_TYPES(DEFINE_SCALE)

static void
scale_c32(void *dst, const void *src, double factor, size_t count)
{
    scale_f16(dst, src, factor, 2 * count);
}

#define NATIVE_ENTRY(id, op, units, size, mid, last) \
    .reduce[TC_##id][TC_REDOP_##op] = reduce_##id##_##op,
#define SMALL_ENTRY(id, op, type, units, pair, mid) \
    .reduce[TC_##id][TC_REDOP_##op] = reduce_##id##_##op,
#define SMALL_TYPE_ENTRY(id, type) \
    .scale[TC_##id] = scale_##type, .widen[TC_##id] = widen_##type, \
    .narrow[TC_##id] = narrow_##type,
/* What a file that includes this exports. */
#define TC_REDUCE_KERNELS_INIT \
    { \
        NATIVE_KERNELS(NATIVE_ENTRY) SMALL_KERNELS(SMALL_ENTRY) \
            SMALL_TYPES(SMALL_TYPE_ENTRY) \
                .scale[TC_FLOAT32] = scale_f32, \
        .scale[TC_FLOAT64] = scale_f64, \
        .scale[TC_COMPLEX32] = scale_c32, \
        .scale[TC_COMPLEX64] = scale_c64, \
        .scale[TC_COMPLEX128] = scale_c128, \
    }

#endif
