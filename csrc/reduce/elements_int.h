/* SPDX-License-Identifier: BSD-3-Clause */
/* Integer and bool arithmetic on one element in memory, to be inlined into a loop. */
#ifndef TC_REDUCE_ELEMENTS_INT_H
#define TC_REDUCE_ELEMENTS_INT_H

#include <stdint.h>

#include "reduce/small_float.h"

/* Elements may lie at any address, and the bytes of one type be read as another. */
#define TC_UNALIGNED __attribute__((aligned(1), may_alias))
typedef uint8_t u8 TC_UNALIGNED;
typedef uint16_t u16 TC_UNALIGNED;
typedef uint32_t u32 TC_UNALIGNED;
typedef uint64_t u64 TC_UNALIGNED;
typedef int8_t i8 TC_UNALIGNED;
typedef int16_t i16 TC_UNALIGNED;
typedef int32_t i32 TC_UNALIGNED;
typedef int64_t i64 TC_UNALIGNED;

/* *d = *a op *b; the last argument is the number of sources, for averages. Sums and
 * products are unsigned: they wrap, and the bits are those of the signed type. */
TC_INLINE void
add_u8(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = (u8)(*(const u8 *)a + *(const u8 *)b);
}

TC_INLINE void
add_u16(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u16 *)d = (u16)(*(const u16 *)a + *(const u16 *)b);
}

TC_INLINE void
add_u32(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u32 *)d = *(const u32 *)a + *(const u32 *)b;
}

TC_INLINE void
add_u64(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u64 *)d = *(const u64 *)a + *(const u64 *)b;
}

TC_INLINE void
mul_u8(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = (u8)(*(const u8 *)a * *(const u8 *)b);
}

/* Through uint32_t: as int the product could overflow. */
TC_INLINE void
mul_u16(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u16 *)d = (u16)((uint32_t)*(const u16 *)a * *(const u16 *)b);
}

TC_INLINE void
mul_u32(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u32 *)d = *(const u32 *)a * *(const u32 *)b;
}

TC_INLINE void
mul_u64(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u64 *)d = *(const u64 *)a * *(const u64 *)b;
}

TC_INLINE void
and_u8(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = *(const u8 *)a & *(const u8 *)b;
}

TC_INLINE void
or_u8(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = *(const u8 *)a | *(const u8 *)b;
}

TC_INLINE void
xor_u8(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = *(const u8 *)a ^ *(const u8 *)b;
}

TC_INLINE void
and_bool(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = (*(const u8 *)a != 0) & (*(const u8 *)b != 0);
}

TC_INLINE void
or_bool(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = (*(const u8 *)a != 0) | (*(const u8 *)b != 0);
}

TC_INLINE void
xor_bool(void *d, const void *a, const void *b, int n)
{
    (void)n;
    *(u8 *)d = (*(const u8 *)a != 0) ^ (*(const u8 *)b != 0);
}

/* A quotient in the next larger float truncates to the exact one: if it is not whole,
 * a numerator below 2^16 (2^32) keeps it 2^-16 (2^-32) off, relatively, and float
 * (double) errs by 2^-24 (2^-53). Vector units divide only floats. */
TC_INLINE void
avg_u8(void *d, const void *a, const void *b, int n)
{
    u8 sum = (u8)(*(const u8 *)a + *(const u8 *)b);

    *(u8 *)d = (u8)(int32_t)((float)sum / (float)n);
}

TC_INLINE void
avg_i8(void *d, const void *a, const void *b, int n)
{
    i8 sum = (i8)(*(const i8 *)a + *(const i8 *)b);

    *(i8 *)d = (i8)(int32_t)((float)sum / (float)n);
}

TC_INLINE void
avg_u16(void *d, const void *a, const void *b, int n)
{
    u16 sum = (u16)(*(const u16 *)a + *(const u16 *)b);

    *(u16 *)d = (u16)(int32_t)((float)sum / (float)n);
}

TC_INLINE void
avg_i16(void *d, const void *a, const void *b, int n)
{
    i16 sum = (i16)(*(const i16 *)a + *(const i16 *)b);

    *(i16 *)d = (i16)(int32_t)((float)sum / (float)n);
}

TC_INLINE void
avg_i32(void *d, const void *a, const void *b, int n)
{
    i32 sum = (i32)(*(const u32 *)a + *(const u32 *)b);

    *(i32 *)d = (i32)((double)sum / (double)n);
}

/* There are at least two sources, so the quotient fits int32_t. */
TC_INLINE void
avg_u32(void *d, const void *a, const void *b, int n)
{
    u32 sum = *(const u32 *)a + *(const u32 *)b;
    double exact = (double)(int32_t)(sum ^ 0x80000000u) + 2147483648.0;

    *(u32 *)d = (u32)(int32_t)(exact / (double)n);
}

TC_INLINE void
avg_u64(void *d, const void *a, const void *b, int n)
{
    *(u64 *)d = (*(const u64 *)a + *(const u64 *)b) / (u64)n;
}

TC_INLINE void
avg_i64(void *d, const void *a, const void *b, int n)
{
    i64 sum = (i64)(*(const u64 *)a + *(const u64 *)b);

    *(i64 *)d = sum / n;
}

#endif
