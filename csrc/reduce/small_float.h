/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion of float32 to and from 16- and 8-bit floats, without a branch. */
#ifndef TC_REDUCE_SMALL_FLOAT_H
#define TC_REDUCE_SMALL_FLOAT_H

#include <stdint.h>
#include <string.h>

/* Everything here must end up inside the loop that calls it, compiled for the
 * instruction set of that loop: a call costs a factor of ten. */
#define TC_INLINE static inline __attribute__((always_inline))

/* Codes are without the sign bit. */
typedef struct small_format {
    int mantissa_bits;
    int bias;
    uint32_t largest; /* code of the largest finite number */
    uint32_t overflow; /* code of what is beyond it */
    uint32_t nan;
} small_format;

static const small_format format_f16 = {10, 15, 0x7bff, 0x7c00, 0x7e00};
/* Without infinity; beyond the largest number, torch 2.13 stays at it. */
static const small_format format_e4m3fn = {3, 7, 0x7e, 0x7e, 0x7f};
static const small_format format_e5m2 = {2, 15, 0x7b, 0x7c, 0x7f};
/* "fnuz": the code of minus zero is the only NaN, there is no infinity. */
static const small_format format_e4m3fnuz = {3, 8, 0x7f, 0x80, 0x80};
static const small_format format_e5m2fnuz = {2, 16, 0x7f, 0x80, 0x80};

TC_INLINE float
float_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

TC_INLINE uint32_t
bits_of_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* By masks, because gcc does not vectorise a conditional around float arithmetic that
 * could trap. */
TC_INLINE uint32_t
select_bits(int condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - (uint32_t)condition;

    return (yes & mask) | (no & ~mask);
}

/* The float32 of a code without sign, for finite numbers. */
TC_INLINE uint32_t
widen_finite(uint32_t code, small_format f)
{
    uint32_t normal =
        (code << (23 - f.mantissa_bits)) + ((uint32_t)(127 - f.bias) << 23);
    /* The smallest number of the format, 2^(1 - bias - mantissa_bits). */
    uint32_t unit = (uint32_t)(128 - f.bias - f.mantissa_bits) << 23;
    uint32_t denormal = bits_of_float((float)(int32_t)code * float_of_bits(unit));

    return select_bits((int32_t)code < (1 << f.mantissa_bits), denormal, normal);
}

/* The code nearest to a float32, both without sign, ties to even; not for NaN. */
TC_INLINE uint32_t
narrow_finite(uint32_t bits, small_format f)
{
    int shift = 23 - f.mantissa_bits;
    uint32_t odd = (bits >> shift) & 1;
    uint32_t rounded = bits + odd + ((1u << (shift - 1)) - 1);
    uint32_t normal = (rounded - ((uint32_t)(127 - f.bias) << 23)) >> shift;
    /* Adding a power of two whose last place is the format's smallest number leaves the
     * rounded multiple of that in the low bits. */
    uint32_t magic = (uint32_t)(151 - f.bias - f.mantissa_bits) << 23;
    uint32_t denormal =
        bits_of_float(float_of_bits(bits) + float_of_bits(magic)) - magic;
    int is_normal = (int32_t)bits >= ((128 - f.bias) << 23);
    uint32_t code =
        select_bits((int32_t)normal > (int32_t)f.largest, f.overflow, normal);

    return select_bits(is_normal, code, denormal);
}

TC_INLINE float
f32_of_bf16(uint32_t code)
{
    return float_of_bits(code << 16);
}

TC_INLINE uint32_t
bf16_of_f32(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16;

    return value != value ? 0x7fc0 : rounded;
}

/* As the hardware's conversion: a NaN keeps its payload and becomes quiet. */
TC_INLINE float
f32_of_f16(uint32_t code)
{
    uint32_t abs = code & 0x7fffu;
    uint32_t sign = (code & 0x8000u) << 16;
    uint32_t quiet = select_bits((int32_t)abs > 0x7c00, 0x400000, 0);
    uint32_t special = (abs << 13) | 0x7f800000 | quiet;
    uint32_t finite = widen_finite(abs, format_f16);

    return float_of_bits(sign | select_bits((int32_t)abs >= 0x7c00, special, finite));
}

TC_INLINE uint32_t
f16_of_f32(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t abs = bits & 0x7fffffff;
    uint32_t nan = format_f16.nan | ((abs >> 13) & 0x3ff);
    uint32_t finite = narrow_finite(abs, format_f16);
    uint32_t code = select_bits((int32_t)abs > 0x7f800000, nan, finite);

    return code | ((bits >> 16) & 0x8000);
}

/* e4m3fn and e5m2: codes above `largest` are infinity, where there is one, and NaN. */
TC_INLINE float
f32_of_signed_f8(uint32_t code, small_format f)
{
    uint32_t abs = code & 0x7fu;
    uint32_t sign = (code & 0x80u) << 24;
    int is_infinity = (abs == f.overflow) & (f.overflow > f.largest);
    uint32_t special = select_bits(is_infinity, 0x7f800000, 0x7fc00000);
    uint32_t finite = widen_finite(abs, f);

    return float_of_bits(
        sign | select_bits((int32_t)abs > (int32_t)f.largest, special, finite));
}

TC_INLINE uint32_t
signed_f8_of_f32(float value, small_format f)
{
    uint32_t bits = bits_of_float(value);
    uint32_t abs = bits & 0x7fffffff;
    uint32_t finite = narrow_finite(abs, f);
    uint32_t code = select_bits((int32_t)abs > 0x7f800000, f.nan, finite);

    return code | ((bits >> 24) & 0x80);
}

TC_INLINE float
f32_of_fnuz_f8(uint32_t code, small_format f)
{
    uint32_t sign = (code & 0x80u) << 24;
    uint32_t finite = sign | widen_finite(code & 0x7fu, f);

    return float_of_bits(select_bits(code == 0x80, 0x7fc00000, finite));
}

TC_INLINE uint32_t
fnuz_f8_of_f32(float value, small_format f)
{
    uint32_t bits = bits_of_float(value);
    uint32_t abs = bits & 0x7fffffff;
    uint32_t finite = narrow_finite(abs, f);
    uint32_t code = select_bits((int32_t)abs > 0x7f800000, f.nan, finite);
    /* Neither zero nor NaN has a sign. */
    uint32_t sign = select_bits(code == 0, 0, (bits >> 24) & 0x80);

    return code | sign;
}

TC_INLINE float
f32_of_e4m3fn(uint32_t code)
{
    return f32_of_signed_f8(code, format_e4m3fn);
}

TC_INLINE uint32_t
e4m3fn_of_f32(float value)
{
    return signed_f8_of_f32(value, format_e4m3fn);
}

TC_INLINE float
f32_of_e5m2(uint32_t code)
{
    return f32_of_signed_f8(code, format_e5m2);
}

TC_INLINE uint32_t
e5m2_of_f32(float value)
{
    return signed_f8_of_f32(value, format_e5m2);
}

TC_INLINE float
f32_of_e4m3fnuz(uint32_t code)
{
    return f32_of_fnuz_f8(code, format_e4m3fnuz);
}

TC_INLINE uint32_t
e4m3fnuz_of_f32(float value)
{
    return fnuz_f8_of_f32(value, format_e4m3fnuz);
}

TC_INLINE float
f32_of_e5m2fnuz(uint32_t code)
{
    return f32_of_fnuz_f8(code, format_e5m2fnuz);
}

TC_INLINE uint32_t
e5m2fnuz_of_f32(float value)
{
    return fnuz_f8_of_f32(value, format_e5m2fnuz);
}

#endif
