/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduction kernels: same bits in every instruction set, in place, at any address. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dtype.h"
#include "reduce/kernels.h"
#include "support/check.h"

#define MAX_SOURCES 5
/* Two blocks of accumulators and a bit of the widest and of the narrowest type. */
#define MAX_BYTES 20000
#define GUARD 64
#define GUARD_BYTE 0xa5

typedef struct buffer {
    unsigned char bytes[GUARD + MAX_BYTES + GUARD];
} buffer;

static buffer sources[MAX_SOURCES];
static buffer expected;
static buffer result;

static uint32_t
random_u32(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Zeros, the smallest, the largest, infinities and NaN of several float types, and the
 * borders of integers. */
static const uint64_t specials[] = {
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7b,
    0x7c,
    0x7e,
    0x8000,
    0x7bff,
    0x7c00,
    0xfc00,
    0x7e00,
    0x7f80,
    0xff80,
    0x0080,
    0x80000000,
    0x7f800000,
    0xff800000,
    0x7fc00000,
    0x7f7fffff,
    0x00800000,
    0x3f800000,
    0x7fffffff,
    0xffffffff,
    0x8000000000000000u,
    0x7ff0000000000000u,
    0xfff0000000000000u,
    0x7ff8000000000000u,
    0x7fefffffffffffffu,
    0x0010000000000000u,
    0x7fffffffffffffffu,
    0xffffffffffffffffu,
    0x3f803f803f803f80u,
    0x3c003c003c003c00u,
    0x3838383838383838u,
};

static size_t
unit_size(tc_dtype dtype)
{
    switch (dtype) {
    case TC_COMPLEX32:
        return 2;
    case TC_COMPLEX64:
        return 4;
    case TC_COMPLEX128:
        return 8;
    default:
        return tc_dtype_size(dtype);
    }
}

static void
fill(unsigned char *at, size_t bytes, tc_dtype dtype)
{
    size_t unit = unit_size(dtype);

    for (size_t i = 0; i < bytes; i += unit) {
        uint32_t pick = random_u32();
        uint64_t value = (uint64_t)random_u32() << 32 | random_u32();

        if (pick % 4 == 0) {
            value = specials[(pick >> 8) % (sizeof(specials) / sizeof(specials[0]))];
        } else if (pick % 4 == 1 && unit == 4) {
            value = 0x3f000000 | (value & 0x80ffffff); /* near one: sums round */
        } else if (pick % 4 == 1 && unit == 8) {
            value = 0x3fe0000000000000u | (value & 0x801fffffffffffffu);
        }
        memcpy(at + i, &value, unit);
    }
}

static bool
code_is_nan(tc_dtype dtype, uint64_t code)
{
    switch (dtype) {
    case TC_FLOAT16:
    case TC_COMPLEX32:
        return (code & 0x7fff) > 0x7c00;
    case TC_BFLOAT16:
        return (code & 0x7fff) > 0x7f80;
    case TC_FLOAT32:
    case TC_COMPLEX64:
        return (code & 0x7fffffff) > 0x7f800000;
    case TC_FLOAT64:
    case TC_COMPLEX128:
        return (code & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
    case TC_FLOAT8_E4M3FN:
        return (code & 0x7f) == 0x7f;
    case TC_FLOAT8_E5M2:
        return (code & 0x7f) > 0x7c;
    case TC_FLOAT8_E4M3FNUZ:
    case TC_FLOAT8_E5M2FNUZ:
        return code == 0x80;
    default:
        return false;
    }
}

/* Bits equal, except that the payload and the sign of a NaN may be any. */
static void
check_same(const unsigned char *a, const unsigned char *b, size_t bytes, tc_dtype dtype,
           tc_redop op, int level, int n)
{
    size_t unit = unit_size(dtype);

    for (size_t i = 0; i < bytes; i += unit) {
        uint64_t x = 0;
        uint64_t y = 0;

        memcpy(&x, a + i, unit);
        memcpy(&y, b + i, unit);
        if (x != y && !(code_is_nan(dtype, x) && code_is_nan(dtype, y))) {
            fprintf(stderr,
                    "%s %s level %d, %d sources, unit %zu: %llx, expected %llx\n",
                    tc_dtype_name(dtype), tc_redop_name(op), level, n, i / unit,
                    (unsigned long long)y, (unsigned long long)x);
            exit(1);
        }
    }
}

static void
check_guards(const buffer *b, size_t offset, size_t bytes)
{
    for (size_t i = 0; i < offset; i++) {
        CHECK(b->bytes[i] == GUARD_BYTE);
    }
    for (size_t i = offset + bytes; i < offset + bytes + GUARD; i++) {
        CHECK(b->bytes[i] == GUARD_BYTE);
    }
}

/* One element a call takes the scalar end of every loop: vectors must agree with it. */
static void
expect_one_by_one(tc_reduce_fn fn, const void *const *srcs, int n, size_t count,
                  size_t size)
{
    for (size_t i = 0; i < count; i++) {
        const void *at[MAX_SOURCES];

        for (int k = 0; k < n; k++) {
            at[k] = (const char *)srcs[k] + i * size;
        }
        fn(expected.bytes + i * size, at, n, 1);
    }
}

static void
check_levels(tc_dtype dtype, tc_redop op, int n, size_t count)
{
    size_t size = tc_dtype_size(dtype);
    size_t bytes = count * size;
    const void *srcs[MAX_SOURCES];
    tc_reduce_fn fn;

    for (int k = 0; k < n; k++) {
        unsigned char *at = sources[k].bytes + random_u32() % GUARD;

        fill(at, bytes, dtype);
        srcs[k] = at;
    }
    CHECK(tc_reduce_find_isa(TC_ISA_BASELINE, dtype, op, &fn, NULL) == TC_OK);
    expect_one_by_one(fn, srcs, n, count, size);
    for (int level = 0; level < TC_ISA_COUNT; level++) {
        size_t offset = random_u32() % GUARD;

        if (tc_reduce_kernels_at(level) == NULL) {
            continue;
        }
        CHECK(tc_reduce_find_isa(level, dtype, op, &fn, NULL) == TC_OK);
        memset(&result, GUARD_BYTE, offset + bytes + GUARD);
        fn(result.bytes + offset, srcs, n, count);
        check_guards(&result, offset, bytes);
        check_same(expected.bytes, result.bytes + offset, bytes, dtype, op, level, n);
        /* In place of each source. */
        for (int k = 0; k < n; k++) {
            const void *aliased[MAX_SOURCES];

            memcpy(aliased, srcs, sizeof(aliased));
            memset(&result, GUARD_BYTE, offset + bytes + GUARD);
            memcpy(result.bytes + offset, srcs[k], bytes);
            aliased[k] = result.bytes + offset;
            fn(result.bytes + offset, aliased, n, count);
            check_guards(&result, offset, bytes);
            check_same(expected.bytes, result.bytes + offset, bytes, dtype, op, level,
                       n);
        }
    }
}

static void
test_levels_agree(void)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 17, 31, 63, 65, 129, 257};

    for (int d = 0; d < TC_DTYPE_COUNT; d++) {
        for (int o = 0; o < TC_REDOP_COUNT; o++) {
            tc_dtype dtype = (tc_dtype)d;
            tc_redop op = (tc_redop)o;
            tc_reduce_fn fn;

            if (tc_reduce_find(dtype, op, &fn, NULL) != TC_OK) {
                continue;
            }
            for (int n = 1; n <= MAX_SOURCES; n++) {
                for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                    check_levels(dtype, op, n, counts[i]);
                }
            }
            check_levels(dtype, op, 2, 4999 / tc_dtype_size(dtype));
            check_levels(dtype, op, 3, MAX_BYTES / tc_dtype_size(dtype));
        }
    }
}

static void
reduce_two(tc_dtype dtype, tc_redop op, const void *a, const void *b, void *dst)
{
    const void *srcs[2] = {a, b};
    tc_reduce_fn fn;

    CHECK(tc_reduce_find(dtype, op, &fn, NULL) == TC_OK);
    fn(dst, srcs, 2, 1);
}

static void
test_integers(void)
{
    int8_t a8 = -128;
    int8_t b8 = -1;
    int8_t c8;
    uint16_t a16 = 0xffff;
    uint16_t c16;
    int32_t a32 = -7;
    int32_t b32 = 2;
    int32_t c32;
    int64_t a64 = -9;
    int64_t b64 = 4;
    int64_t c64;
    uint32_t au = UINT32_MAX;
    uint32_t bu = 0;
    uint32_t cu;

    reduce_two(TC_INT8, TC_REDOP_SUM, &a8, &b8, &c8);
    CHECK(c8 == 127);
    reduce_two(TC_UINT16, TC_REDOP_PRODUCT, &a16, &a16, &c16);
    CHECK(c16 == 1);
    reduce_two(TC_INT32, TC_REDOP_AVG, &a32, &b32, &c32);
    CHECK(c32 == -2);
    reduce_two(TC_INT64, TC_REDOP_AVG, &a64, &b64, &c64);
    CHECK(c64 == -2);
    reduce_two(TC_UINT32, TC_REDOP_AVG, &au, &bu, &cu);
    CHECK(cu == UINT32_MAX / 2);
    reduce_two(TC_INT8, TC_REDOP_MIN, &a8, &b8, &c8);
    CHECK(c8 == -128);
    reduce_two(TC_UINT8, TC_REDOP_MIN, &a8, &b8, &c8);
    CHECK(c8 == -128); /* 128 < 255 */
    reduce_two(TC_INT32, TC_REDOP_BXOR, &a32, &b32, &c32);
    CHECK(c32 == (-7 ^ 2));
}

/* Every sum and every divisor that a byte has, and the hard ones of the wider types. */
static void
test_averages(void)
{
    for (int n = 2; n <= 300; n += n < 20 ? 1 : 37) {
        int8_t zero8 = 0;
        int32_t zero32 = 0;
        const void *srcs8[300];
        const void *srcs32[300];
        tc_reduce_fn fn8;
        tc_reduce_fn fn32;

        CHECK(tc_reduce_find(TC_INT8, TC_REDOP_AVG, &fn8, NULL) == TC_OK);
        CHECK(tc_reduce_find(TC_INT32, TC_REDOP_AVG, &fn32, NULL) == TC_OK);
        for (int k = 0; k < n; k++) {
            srcs8[k] = &zero8;
            srcs32[k] = &zero32;
        }
        for (int v = -128; v < 128; v++) {
            int8_t value = (int8_t)v;
            int32_t wide = v < 0 ? INT32_MIN + n * -v - 1 : INT32_MAX - n * v;
            int32_t wide_average;
            int8_t average;

            srcs8[0] = &value;
            fn8(&average, srcs8, n, 1);
            CHECK(average == v / n);
            srcs32[0] = &wide;
            fn32(&wide_average, srcs32, n, 1);
            CHECK(wide_average == wide / n);
        }
    }
}

static void
test_bool(void)
{
    static const struct {
        tc_redop op;
        uint8_t results[4]; /* of 00 01 10 11 */
    } rows[] = {
        {TC_REDOP_SUM, {0, 1, 1, 1}},  {TC_REDOP_MAX, {0, 1, 1, 1}},
        {TC_REDOP_BOR, {0, 1, 1, 1}},  {TC_REDOP_PRODUCT, {0, 0, 0, 1}},
        {TC_REDOP_MIN, {0, 0, 0, 1}},  {TC_REDOP_BAND, {0, 0, 0, 1}},
        {TC_REDOP_BXOR, {0, 1, 1, 0}},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint8_t v = 0; v < 4; v++) {
            uint8_t a = v >> 1;
            uint8_t b = v & 1;
            uint8_t c = 9;

            reduce_two(TC_BOOL, rows[i].op, &a, &b, &c);
            CHECK(c == rows[i].results[v]);
        }
    }
}

static void
test_one_rounding(void)
{
    /* 1 + 2^-8 + 2^-8 in bfloat16: rounding twice would give 1. */
    uint16_t one = 0x3f80;
    uint16_t small = 0x3b80;
    uint16_t sum;
    const void *srcs[3] = {&one, &small, &small};
    tc_reduce_fn fn;

    CHECK(tc_reduce_find(TC_BFLOAT16, TC_REDOP_SUM, &fn, NULL) == TC_OK);
    fn(&sum, srcs, 3, 1);
    CHECK(sum == 0x3f81);
}

static void
check_refused(tc_dtype dtype, tc_redop op, const char *text)
{
    tc_error err;
    tc_reduce_fn fn = NULL;

    CHECK(tc_reduce_find(dtype, op, &fn, &err) == TC_ERR_UNSUPPORTED);
    CHECK(fn == NULL);
    CHECK(err.status == TC_ERR_UNSUPPORTED);
    if (strcmp(err.message, text) != 0) {
        fprintf(stderr, "refusal says: %s\n", err.message);
        CHECK(!"the expected text");
    }
}

static void
test_refusals(void)
{
    tc_reduce_fn fn;
    tc_error err;
    int found = 0;

    check_refused(TC_FLOAT32, TC_REDOP_BAND,
                  "Cannot use ReduceOp.BAND with non-integral dtype float32");
    check_refused(TC_COMPLEX64, TC_REDOP_BXOR,
                  "Cannot use ReduceOp.BXOR with non-integral dtype complex64");
    check_refused(
        TC_BOOL, TC_REDOP_AVG,
        "Cannot use ReduceOp.AVG with dtype bool: a truth value has no average");
    check_refused(TC_INT32, TC_REDOP_PREMUL_SUM,
                  "Cannot use ReduceOp.PREMUL_SUM with dtype int32: the factor needs a "
                  "floating-point or complex dtype");
    check_refused(TC_COMPLEX128, TC_REDOP_MIN,
                  "Cannot use ReduceOp.MIN with dtype complex128: complex numbers have "
                  "no order");
    check_refused(
        TC_FLOAT8_E8M0FNU, TC_REDOP_SUM,
        "Cannot use ReduceOp.SUM with dtype float8_e8m0fnu: it holds powers of "
        "two without zero or sign, which no operation keeps");
    check_refused(TC_FLOAT4_E2M1FN_X2, TC_REDOP_MAX,
                  "Cannot use ReduceOp.MAX with dtype float4_e2m1fn_x2: it packs two "
                  "numbers in a byte and torch defines no arithmetic on it");
    CHECK(tc_reduce_find((tc_dtype)99, TC_REDOP_SUM, &fn, &err) ==
          TC_ERR_INVALID_ARGUMENT);
    CHECK(tc_reduce_find(TC_INT8, (tc_redop)-1, &fn, &err) == TC_ERR_INVALID_ARGUMENT);
    CHECK(tc_reduce_find_isa(TC_ISA_COUNT, TC_INT8, TC_REDOP_SUM, &fn, &err) ==
          TC_ERR_UNSUPPORTED);
    for (int d = 0; d < TC_DTYPE_COUNT; d++) {
        for (int o = 0; o < TC_REDOP_COUNT; o++) {
            found += tc_reduce_find((tc_dtype)d, (tc_redop)o, &fn, NULL) == TC_OK;
        }
    }
    /* bool 7; 8 integers, 8 each; 8 floats, 6 each; 3 complex, 4 each. */
    CHECK(found == 7 + 64 + 48 + 12);
}

static void
test_scale(void)
{
    float f[3] = {1.0f, -2.5f, 8.0f};
    uint16_t b[3] = {0x3f80, 0xc020, 0x7f7f};
    double c[2] = {3.0, -4.0};
    tc_error err;

    CHECK(tc_reduce_scale(TC_FLOAT32, f, f, 0.5, 3, &err) == TC_OK);
    CHECK(f[0] == 0.5f && f[1] == -1.25f && f[2] == 4.0f);
    CHECK(tc_reduce_scale(TC_BFLOAT16, b, b, 2.0, 3, &err) == TC_OK);
    CHECK(b[0] == 0x4000 && b[1] == 0xc0a0 && b[2] == 0x7f80);
    CHECK(tc_reduce_scale(TC_COMPLEX128, c, c, -2.0, 1, &err) == TC_OK);
    CHECK(c[0] == -6.0 && c[1] == 8.0);
    CHECK(tc_reduce_scale(TC_INT64, c, c, 2.0, 1, &err) == TC_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "PREMUL_SUM with dtype int64") != NULL);
}

/* The scaling, widening and narrowing of all levels against the baseline's. */
static void
test_conversions_agree(void)
{
    const tc_reduce_kernels *base = tc_reduce_kernels_at(TC_ISA_BASELINE);
    static float wide[2][MAX_BYTES / 4];

    for (int level = 1; level < TC_ISA_COUNT; level++) {
        const tc_reduce_kernels *kernels = tc_reduce_kernels_at(level);

        for (int d = 0; kernels != NULL && d < TC_DTYPE_COUNT; d++) {
            tc_dtype dtype = (tc_dtype)d;
            size_t size = tc_dtype_size(dtype);
            size_t count = 1021;

            CHECK((kernels->scale[d] == NULL) == (base->scale[d] == NULL));
            CHECK((kernels->widen[d] == NULL) == (base->widen[d] == NULL));
            if (base->scale[d] != NULL) {
                fill(sources[0].bytes, count * size, dtype);
                base->scale[d](expected.bytes, sources[0].bytes, 1.0 / 3, count);
                kernels->scale[d](result.bytes, sources[0].bytes, 1.0 / 3, count);
                check_same(expected.bytes, result.bytes, count * size, dtype,
                           TC_REDOP_PREMUL_SUM, level, 1);
            }
            if (base->widen[d] != NULL) {
                base->widen[d](wide[0], sources[0].bytes, count);
                kernels->widen[d](wide[1], sources[0].bytes, count);
                check_same((unsigned char *)wide[0], (unsigned char *)wide[1],
                           count * 4, TC_FLOAT32, TC_REDOP_SUM, level, 1);
                fill((unsigned char *)wide[0], count * 4, TC_FLOAT32);
                base->narrow[d](expected.bytes, wide[0], count);
                kernels->narrow[d](result.bytes, wide[0], count);
                check_same(expected.bytes, result.bytes, count * size, dtype,
                           TC_REDOP_SUM, level, 1);
            }
        }
    }
}

/* In a child, since the option is read once in a process. */
static int
isa_in_child(const char *wish)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        tc_error err;
        tc_reduce_fn fn;
        const char *isa;

        setenv("TORCHCOMM_ISA", wish, 1);
        if (tc_reduce_find(TC_INT8, TC_REDOP_SUM, &fn, &err) != TC_OK) {
            bool clear = err.status == TC_ERR_INVALID_ARGUMENT &&
                         strstr(err.message, wish) != NULL &&
                         strcmp(tc_reduce_isa(), "none") == 0;

            _exit(clear ? 100 : 101);
        }
        isa = tc_reduce_isa();
        _exit(strcmp(isa, "baseline") == 0 ? 0
              : strcmp(isa, "avx2") == 0   ? 1
              : strcmp(isa, "avx512") == 0 ? 2
                                           : 102);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
test_isa_option(void)
{
    int best = TC_ISA_COUNT - 1;

    while (tc_reduce_kernels_at(best) == NULL) {
        best--;
    }
    CHECK(isa_in_child("") == best);
    CHECK(isa_in_child("baseline") == TC_ISA_BASELINE);
    CHECK(isa_in_child("avx2") == (best < TC_ISA_AVX2 ? best : TC_ISA_AVX2));
    CHECK(isa_in_child("avx512") == best);
    CHECK(isa_in_child("sse9") == 100);
}

int
main(void)
{
    test_isa_option(); /* first: nothing has read the option yet */
    test_refusals();
    test_integers();
    test_averages();
    test_bool();
    test_one_rounding();
    test_scale();
    test_conversions_agree();
    test_levels_agree();
    return 0;
}
