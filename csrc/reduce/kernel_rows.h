/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernels there are: one row for each dtype and operation. */
#ifndef TC_REDUCE_KERNEL_ROWS_H
#define TC_REDUCE_KERNEL_ROWS_H

/* X(element operation, bytes of an element) */
#define NATIVE_PASSES(X) \
    X(add_u8, 1) \
    X(add_u16, 2) \
    X(add_u32, 4) \
    X(add_u64, 8) \
    X(mul_u8, 1) \
    X(mul_u16, 2) \
    X(mul_u32, 4) \
    X(mul_u64, 8) \
    X(min_u8, 1) \
    X(min_u16, 2) \
    X(min_u32, 4) \
    X(min_u64, 8) \
    X(max_u8, 1) \
    X(max_u16, 2) \
    X(max_u32, 4) \
    X(max_u64, 8) \
    X(min_i8, 1) \
    X(min_i16, 2) \
    X(min_i32, 4) \
    X(min_i64, 8) \
    X(max_i8, 1) \
    X(max_i16, 2) \
    X(max_i32, 4) \
    X(max_i64, 8) \
    X(and_u8, 1) \
    X(or_u8, 1) \
    X(xor_u8, 1) \
    X(and_bool, 1) \
    X(or_bool, 1) \
    X(xor_bool, 1) \
    X(add_f32, 4) \
    X(mul_f32, 4) \
    X(min_f32, 4) \
    X(max_f32, 4) \
    X(add_f64, 8) \
    X(mul_f64, 8) \
    X(min_f64, 8) \
    X(max_f64, 8) \
    X(mul_c64, 8) \
    X(mul_c128, 16)

#define AVERAGE_PASSES(X) \
    X(avg_u8, 1) \
    X(avg_u16, 2) \
    X(avg_u32, 4) \
    X(avg_u64, 8) \
    X(avg_i8, 1) \
    X(avg_i16, 2) \
    X(avg_i32, 4) \
    X(avg_i64, 8) \
    X(avg_f32, 4) \
    X(avg_f64, 8)

/* X(dtype, operation, units an element, bytes a unit, pass, last pass). Bitwise
 * operations go by bytes, sums of complex numbers by real numbers. */
#define INTEGER_ROWS(X, id, size, unsigned_type, type) \
    X(id, SUM, 1, size, add_##unsigned_type, add_##unsigned_type) \
    X(id, PRODUCT, 1, size, mul_##unsigned_type, mul_##unsigned_type) \
    X(id, MIN, 1, size, min_##type, min_##type) \
    X(id, MAX, 1, size, max_##type, max_##type) \
    X(id, BAND, size, 1, and_u8, and_u8) \
    X(id, BOR, size, 1, or_u8, or_u8) \
    X(id, BXOR, size, 1, xor_u8, xor_u8) \
    X(id, AVG, 1, size, add_##unsigned_type, avg_##type)

#define BOOL_ROWS(X) \
    X(BOOL, SUM, 1, 1, or_bool, or_bool) \
    X(BOOL, PRODUCT, 1, 1, and_bool, and_bool) \
    X(BOOL, MIN, 1, 1, and_bool, and_bool) \
    X(BOOL, MAX, 1, 1, or_bool, or_bool) \
    X(BOOL, BAND, 1, 1, and_bool, and_bool) \
    X(BOOL, BOR, 1, 1, or_bool, or_bool) \
    X(BOOL, BXOR, 1, 1, xor_bool, xor_bool)

#define FLOAT_ROWS(X, id, size, type) \
    X(id, SUM, 1, size, add_##type, add_##type) \
    X(id, PRODUCT, 1, size, mul_##type, mul_##type) \
    X(id, MIN, 1, size, min_##type, min_##type) \
    X(id, MAX, 1, size, max_##type, max_##type) \
    X(id, PREMUL_SUM, 1, size, add_##type, add_##type) \
    X(id, AVG, 1, size, add_##type, avg_##type)

#define COMPLEX_ROWS(X, id, type, real_size, real) \
    X(id, SUM, 2, real_size, add_##real, add_##real) \
    X(id, PRODUCT, 1, 2 * real_size, mul_##type, mul_##type) \
    X(id, PREMUL_SUM, 2, real_size, add_##real, add_##real) \
    X(id, AVG, 2, real_size, add_##real, avg_##real)

#define NATIVE_KERNELS(X) \
    BOOL_ROWS(X) \
    INTEGER_ROWS(X, UINT8, 1, u8, u8) \
    INTEGER_ROWS(X, INT8, 1, u8, i8) \
    INTEGER_ROWS(X, UINT16, 2, u16, u16) \
    INTEGER_ROWS(X, INT16, 2, u16, i16) \
    INTEGER_ROWS(X, UINT32, 4, u32, u32) \
    INTEGER_ROWS(X, INT32, 4, u32, i32) \
    INTEGER_ROWS(X, UINT64, 8, u64, u64) \
    INTEGER_ROWS(X, INT64, 8, u64, i64) \
    FLOAT_ROWS(X, FLOAT32, 4, f32) \
    FLOAT_ROWS(X, FLOAT64, 8, f64) \
    COMPLEX_ROWS(X, COMPLEX64, c64, 4, f32) \
    COMPLEX_ROWS(X, COMPLEX128, c128, 8, f64)

/* X(dtype, type), the types whose passes gcc vectorises by itself */
#define PLAIN_SMALL_TYPES(X) \
    X(BFLOAT16, bf16) \
    X(FLOAT8_E4M3FN, e4m3fn) \
    X(FLOAT8_E5M2, e5m2) \
    X(FLOAT8_E4M3FNUZ, e4m3fnuz) \
    X(FLOAT8_E5M2FNUZ, e5m2fnuz)
#define SMALL_TYPES(X) \
    PLAIN_SMALL_TYPES(X) \
    X(FLOAT16, f16)

/* X(dtype, operation, type, units an element, pair, mid) */
#define SMALL_ROWS(X, id, type) \
    X(id, SUM, type, 1, add, add) \
    X(id, PRODUCT, type, 1, mul, mul) \
    X(id, MIN, type, 1, min, min) \
    X(id, MAX, type, 1, max, max) \
    X(id, PREMUL_SUM, type, 1, add, add) \
    X(id, AVG, type, 1, avg, add)
#define SMALL_KERNELS(X) \
    SMALL_ROWS(X, BFLOAT16, bf16) \
    SMALL_ROWS(X, FLOAT16, f16) \
    SMALL_ROWS(X, FLOAT8_E4M3FN, e4m3fn) \
    SMALL_ROWS(X, FLOAT8_E5M2, e5m2) \
    SMALL_ROWS(X, FLOAT8_E4M3FNUZ, e4m3fnuz) \
    SMALL_ROWS(X, FLOAT8_E5M2FNUZ, e5m2fnuz) \
    X(COMPLEX32, SUM, f16, 2, add, add) \
    X(COMPLEX32, PRODUCT, f16, 2, complex, complex) \
    X(COMPLEX32, PREMUL_SUM, f16, 2, add, add) \
    X(COMPLEX32, AVG, f16, 2, avg, add)

#endif
