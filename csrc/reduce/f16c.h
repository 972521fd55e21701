/* SPDX-License-Identifier: BSD-3-Clause */
/* float16 loops over the F16C conversions, which gcc does not find by itself. */
#ifndef TC_REDUCE_F16C_H
#define TC_REDUCE_F16C_H

#if defined(__F16C__) && defined(__AVX2__)

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#include "reduce/small_float.h"

#define TC_F16C_LANES 8

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef v8f (*f16c_fn)(v8f a, v8f b, v8f n);

TC_INLINE v8f
f16c_add(v8f a, v8f b, v8f n)
{
    (void)n;
    return a + b;
}

TC_INLINE v8f
f16c_mul(v8f a, v8f b, v8f n)
{
    (void)n;
    return a * b;
}

TC_INLINE v8f
f16c_select(v8i mask, v8f yes, v8f no)
{
    return (v8f)((mask & (v8i)yes) | (~mask & (v8i)no));
}

TC_INLINE v8f
f16c_min(v8f a, v8f b, v8f n)
{
    (void)n;
    return f16c_select((a <= b) | (a != a), a, b);
}

TC_INLINE v8f
f16c_max(v8f a, v8f b, v8f n)
{
    (void)n;
    return f16c_select((a >= b) | (a != a), a, b);
}

TC_INLINE v8f
f16c_avg(v8f a, v8f b, v8f n)
{
    return (a + b) / n;
}

TC_INLINE v8f
f16c_load(const void *p)
{
    return (v8f)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

TC_INLINE void
f16c_store(void *p, v8f v)
{
    _mm_storeu_si128((__m128i *)p,
                     _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

TC_INLINE v8f
f16c_load_f32(const void *p)
{
    v8f v;

    memcpy(&v, p, sizeof(v));
    return v;
}

TC_INLINE void
f16c_store_f32(void *p, v8f v)
{
    memcpy(p, &v, sizeof(v));
}

typedef v8f (*f16c_load_fn)(const void *p);
typedef void (*f16c_store_fn)(void *p, v8f v);

/* How one operand lies in memory. */
typedef struct f16c_operand {
    size_t size;
    f16c_load_fn load;
    f16c_store_fn store;
} f16c_operand;

static const f16c_operand f16c_half = {2, f16c_load, f16c_store};
static const f16c_operand f16c_single = {4, f16c_load_f32, f16c_store_f32};

/* dst and a are of type `acc`, b is float16. */
TC_INLINE void
f16c_loop(void *dst, const void *a, const void *b, size_t count, int n,
          const f16c_operand *acc, f16c_fn op)
{
    char *d = dst;
    const char *x = a;
    const char *y = b;
    float width = (float)n;
    v8f widths = {width, width, width, width, width, width, width, width};
    size_t i = 0;

    for (; i + TC_F16C_LANES <= count; i += TC_F16C_LANES) {
        acc->store(d + i * acc->size,
                   op(acc->load(x + i * acc->size), f16c_load(y + i * 2), widths));
    }
    if (i < count) {
        char tail_x[TC_F16C_LANES * 4] = {0};
        char tail_y[TC_F16C_LANES * 2] = {0};
        size_t rest = (count - i) * acc->size;

        memcpy(tail_x, x + i * acc->size, rest);
        memcpy(tail_y, y + i * 2, (count - i) * 2);
        acc->store(tail_x, op(acc->load(tail_x), f16c_load(tail_y), widths));
        memcpy(d + i * acc->size, tail_x, rest);
    }
}

TC_INLINE void
f16c_convert(void *dst, const void *src, size_t count, const f16c_operand *to,
             const f16c_operand *from)
{
    char *d = dst;
    const char *s = src;
    size_t i = 0;

    for (; i + TC_F16C_LANES <= count; i += TC_F16C_LANES) {
        to->store(d + i * to->size, from->load(s + i * from->size));
    }
    if (i < count) {
        char tail[TC_F16C_LANES * 4] = {0};

        memcpy(tail, s + i * from->size, (count - i) * from->size);
        to->store(tail, from->load(tail));
        memcpy(d + i * to->size, tail, (count - i) * to->size);
    }
}

#endif
#endif
