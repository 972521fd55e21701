/* SPDX-License-Identifier: BSD-3-Clause */
/* Float and complex arithmetic on one element, to be inlined into a loop. */
#ifndef TC_REDUCE_ELEMENTS_FLOAT_H
#define TC_REDUCE_ELEMENTS_FLOAT_H

#include "reduce/elements_int.h"

typedef float f32 TC_UNALIGNED;
typedef double f64 TC_UNALIGNED;

/* On values, for all formats that compute in float32; `n` is the number of sources. */
TC_INLINE float
add(float a, float b, int n)
{
    (void)n;
    return a + b;
}

TC_INLINE float
mul(float a, float b, int n)
{
    (void)n;
    return a * b;
}

/* The first NaN wins, and the first of equal numbers (of zeros with different signs).
 * `|` because a branch would not be vectorised. */
TC_INLINE float
min(float a, float b, int n)
{
    (void)n;
    return ((a <= b) | (a != a)) ? a : b;
}

TC_INLINE float
max(float a, float b, int n)
{
    (void)n;
    return ((a >= b) | (a != a)) ? a : b;
}

TC_INLINE float
avg(float a, float b, int n)
{
    return (a + b) / (float)n;
}

TC_INLINE void
add_f32(void *d, const void *a, const void *b, int n)
{
    *(f32 *)d = add(*(const f32 *)a, *(const f32 *)b, n);
}

TC_INLINE void
mul_f32(void *d, const void *a, const void *b, int n)
{
    *(f32 *)d = mul(*(const f32 *)a, *(const f32 *)b, n);
}

TC_INLINE void
min_f32(void *d, const void *a, const void *b, int n)
{
    *(f32 *)d = min(*(const f32 *)a, *(const f32 *)b, n);
}

TC_INLINE void
max_f32(void *d, const void *a, const void *b, int n)
{
    *(f32 *)d = max(*(const f32 *)a, *(const f32 *)b, n);
}

TC_INLINE void
avg_f32(void *d, const void *a, const void *b, int n)
{
    *(f32 *)d = avg(*(const f32 *)a, *(const f32 *)b, n);
}

TC_INLINE void
add_f64(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(f64 *)d = *(const f64 *)a + *(const f64 *)b;
}

TC_INLINE void
mul_f64(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(f64 *)d = *(const f64 *)a * *(const f64 *)b;
}

TC_INLINE void
min_f64(void *d, const void *a, const void *b, int n)
{
    double x = *(const f64 *)a;
    double y = *(const f64 *)b;

    (void)n;
    *(f64 *)d = ((x <= y) | (x != x)) ? x : y;
}

TC_INLINE void
max_f64(void *d, const void *a, const void *b, int n)
{
    double x = *(const f64 *)a;
    double y = *(const f64 *)b;

    (void)n;
    *(f64 *)d = ((x >= y) | (x != x)) ? x : y;
}

TC_INLINE void
avg_f64(void *d, const void *a, const void *b, int n)
{
    *(f64 *)d = (*(const f64 *)a + *(const f64 *)b) / (double)n;
}

/* x - y. Where sums and differences alternate, as in a complex product, gcc 12 uses the
 * fused vfmaddsub of AVX-512 whatever -ffp-contract says, which changes bits: so the
 * difference is hidden in a sum. */
TC_INLINE float
minus_f32(float x, float y)
{
    return x + float_of_bits(bits_of_float(y) ^ 0x80000000u);
}

TC_INLINE double
minus_f64(double x, double y)
{
    uint64_t bits;

    memcpy(&bits, &y, sizeof(bits));
    bits ^= 0x8000000000000000u;
    memcpy(&y, &bits, sizeof(y));
    return x + y;
}

/* (a + bi)(c + di) = (ac - bd) + (ad + bc)i; `n` is not used. */
TC_INLINE void
mul_c64(void *d, const void *a, const void *b, int n)
{
    const f32 *x = a;
    const f32 *y = b;
    f32 re = minus_f32(x[0] * y[0], x[1] * y[1]);
    f32 im = x[0] * y[1] + x[1] * y[0];

    (void)n;
    ((f32 *)d)[0] = re;
    ((f32 *)d)[1] = im;
}

TC_INLINE void
mul_c128(void *d, const void *a, const void *b, int n)
{
    const f64 *x = a;
    const f64 *y = b;
    f64 re = minus_f64(x[0] * y[0], x[1] * y[1]);
    f64 im = x[0] * y[1] + x[1] * y[0];

    (void)n;
    ((f64 *)d)[0] = re;
    ((f64 *)d)[1] = im;
}

#endif
