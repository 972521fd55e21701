/* SPDX-License-Identifier: BSD-3-Clause */
/* Minimum and maximum of two integers in memory, to be inlined into a loop. */
#ifndef TC_REDUCE_ELEMENTS_ORDER_H
#define TC_REDUCE_ELEMENTS_ORDER_H

#include "reduce/elements_int.h"

TC_INLINE void
min_u8(void *d, const void *a, const void *b, int n)
{
    u8 x = *(const u8 *)a;
    u8 y = *(const u8 *)b;

    (void)n;
    *(u8 *)d = x < y ? x : y;
}

TC_INLINE void
max_u8(void *d, const void *a, const void *b, int n)
{
    u8 x = *(const u8 *)a;
    u8 y = *(const u8 *)b;

    (void)n;
    *(u8 *)d = x > y ? x : y;
}

TC_INLINE void
min_u16(void *d, const void *a, const void *b, int n)
{
    u16 x = *(const u16 *)a;
    u16 y = *(const u16 *)b;

    (void)n;
    *(u16 *)d = x < y ? x : y;
}

TC_INLINE void
max_u16(void *d, const void *a, const void *b, int n)
{
    u16 x = *(const u16 *)a;
    u16 y = *(const u16 *)b;

    (void)n;
    *(u16 *)d = x > y ? x : y;
}

TC_INLINE void
min_u32(void *d, const void *a, const void *b, int n)
{
    u32 x = *(const u32 *)a;
    u32 y = *(const u32 *)b;

    (void)n;
    *(u32 *)d = x < y ? x : y;
}

TC_INLINE void
max_u32(void *d, const void *a, const void *b, int n)
{
    u32 x = *(const u32 *)a;
    u32 y = *(const u32 *)b;

    (void)n;
    *(u32 *)d = x > y ? x : y;
}

TC_INLINE void
min_u64(void *d, const void *a, const void *b, int n)
{
    u64 x = *(const u64 *)a;
    u64 y = *(const u64 *)b;

    (void)n;
    *(u64 *)d = x < y ? x : y;
}

TC_INLINE void
max_u64(void *d, const void *a, const void *b, int n)
{
    u64 x = *(const u64 *)a;
    u64 y = *(const u64 *)b;

    (void)n;
    *(u64 *)d = x > y ? x : y;
}

TC_INLINE void
min_i8(void *d, const void *a, const void *b, int n)
{
    i8 x = *(const i8 *)a;
    i8 y = *(const i8 *)b;

    (void)n;
    *(i8 *)d = x < y ? x : y;
}

TC_INLINE void
max_i8(void *d, const void *a, const void *b, int n)
{
    i8 x = *(const i8 *)a;
    i8 y = *(const i8 *)b;

    (void)n;
    *(i8 *)d = x > y ? x : y;
}

TC_INLINE void
min_i16(void *d, const void *a, const void *b, int n)
{
    i16 x = *(const i16 *)a;
    i16 y = *(const i16 *)b;

    (void)n;
    *(i16 *)d = x < y ? x : y;
}

TC_INLINE void
max_i16(void *d, const void *a, const void *b, int n)
{
    i16 x = *(const i16 *)a;
    i16 y = *(const i16 *)b;

    (void)n;
    *(i16 *)d = x > y ? x : y;
}

TC_INLINE void
min_i32(void *d, const void *a, const void *b, int n)
{
    i32 x = *(const i32 *)a;
    i32 y = *(const i32 *)b;

    (void)n;
    *(i32 *)d = x < y ? x : y;
}

TC_INLINE void
max_i32(void *d, const void *a, const void *b, int n)
{
    i32 x = *(const i32 *)a;
    i32 y = *(const i32 *)b;

    (void)n;
    *(i32 *)d = x > y ? x : y;
}

TC_INLINE void
min_i64(void *d, const void *a, const void *b, int n)
{
    i64 x = *(const i64 *)a;
    i64 y = *(const i64 *)b;

    (void)n;
    *(i64 *)d = x < y ? x : y;
}

TC_INLINE void
max_i64(void *d, const void *a, const void *b, int n)
{
    i64 x = *(const i64 *)a;
    i64 y = *(const i64 *)b;

    (void)n;
    *(i64 *)d = x > y ? x : y;
}

#endif
