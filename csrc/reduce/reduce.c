/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the reduction kernels for this CPU and refuses pairs without meaning. */
#include "reduce/reduce.h"

#include <string.h>

#include "base/atomic.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "reduce/kernels.h"

static const char *const isa_names[TC_ISA_COUNT] = {"baseline", "avx2", "avx512"};

static bool
cpu_runs(int level)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");

    switch (level) {
    case TC_ISA_BASELINE:
        return true;
    case TC_ISA_AVX2:
        return avx2;
    case TC_ISA_AVX512:
        return avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    default:
        return false;
    }
#else
    return level == TC_ISA_BASELINE;
#endif
}

static const tc_reduce_kernels *const kernels_of[TC_ISA_COUNT] = {
    [TC_ISA_BASELINE] = &tc_reduce_kernels_baseline,
#if defined(__x86_64__)
    [TC_ISA_AVX2] = &tc_reduce_kernels_avx2,
    [TC_ISA_AVX512] = &tc_reduce_kernels_avx512,
#endif
};

const tc_reduce_kernels *
tc_reduce_kernels_at(int level)
{
    return cpu_runs(level) ? kernels_of[level] : NULL;
}

static tc_status
wished_level(int *level_p, tc_error *err)
{
    char wish[32];

    TC_TRY(tc_option_string(TC_OPT_ISA, sizeof(wish), wish, err));
    if (wish[0] == '\0') {
        *level_p = TC_ISA_COUNT - 1;
        return TC_OK;
    }
    for (int i = 0; i < TC_ISA_COUNT; i++) {
        if (strcmp(wish, isa_names[i]) == 0) {
            *level_p = i;
            return TC_OK;
        }
    }
    return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                        "%s is '%s', not one of baseline, avx2 and avx512",
                        tc_option_variable(TC_OPT_ISA), wish);
}

/* The best level of this CPU, lowered by the option; read once in a process. */
static tc_status
chosen_level(int *level_p, tc_error *err)
{
    static uint32_t level_plus_one; /* 0: not yet; all threads find the same */
    uint32_t known = tc_load_relaxed_u32(&level_plus_one);
    int level = TC_ISA_BASELINE;

    if (known == 0) {
        TC_TRY(wished_level(&level, err));
        while (!cpu_runs(level)) {
            level--;
        }
        known = (uint32_t)level + 1;
        tc_store_relaxed_u32(&level_plus_one, known);
    }
    *level_p = (int)known - 1;
    return TC_OK;
}

const char *
tc_reduce_isa(void)
{
    int level = TC_ISA_BASELINE;

    return chosen_level(&level, NULL) == TC_OK ? isa_names[level] : "none";
}

/* Why a pair has no meaning, to follow its names. */
static const char *
refusal_reason(tc_dtype dtype, tc_redop op)
{
    if (dtype == TC_FLOAT8_E8M0FNU) {
        return "it holds powers of two without zero or sign, which no operation keeps";
    }
    if (dtype == TC_FLOAT4_E2M1FN_X2) {
        return "it packs two numbers in a byte and torch defines no arithmetic on it";
    }
    switch (op) {
    case TC_REDOP_PREMUL_SUM:
        return "the factor needs a floating-point or complex dtype";
    case TC_REDOP_AVG:
        return "a truth value has no average";
    default:
        return "complex numbers have no order";
    }
}

static tc_status
refuse(tc_dtype dtype, tc_redop op, tc_error *err)
{
    bool bitwise = op == TC_REDOP_BAND || op == TC_REDOP_BOR || op == TC_REDOP_BXOR;

    if (bitwise) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED,
                            "Cannot use ReduceOp.%s with non-integral dtype %s",
                            tc_redop_name(op), tc_dtype_name(dtype));
    }
    return tc_error_set(err, TC_ERR_UNSUPPORTED,
                        "Cannot use ReduceOp.%s with dtype %s: %s", tc_redop_name(op),
                        tc_dtype_name(dtype), refusal_reason(dtype, op));
}

static tc_status
refuse_numbers(tc_dtype dtype, tc_redop op, tc_error *err)
{
    return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                        "no reduction number %d with dtype number %d", (int)op,
                        (int)dtype);
}

static tc_status
find_in(const tc_reduce_kernels *kernels, tc_dtype dtype, tc_redop op,
        tc_reduce_fn *fn_p, tc_error *err)
{
    tc_reduce_fn fn;

    if ((unsigned)dtype >= TC_DTYPE_COUNT || (unsigned)op >= TC_REDOP_COUNT) {
        return refuse_numbers(dtype, op, err);
    }
    fn = kernels->reduce[dtype][op];
    if (fn == NULL) {
        return refuse(dtype, op, err);
    }
    *fn_p = fn;
    return TC_OK;
}

tc_status
tc_reduce_find_isa(int level, tc_dtype dtype, tc_redop op, tc_reduce_fn *fn_p,
                   tc_error *err)
{
    const tc_reduce_kernels *kernels = tc_reduce_kernels_at(level);

    if (kernels == NULL) {
        return tc_error_set(err, TC_ERR_UNSUPPORTED, "this CPU cannot run ISA level %d",
                            level);
    }
    return find_in(kernels, dtype, op, fn_p, err);
}

tc_status
tc_reduce_find(tc_dtype dtype, tc_redop op, tc_reduce_fn *fn_p, tc_error *err)
{
    int level = TC_ISA_BASELINE;

    TC_TRY(chosen_level(&level, err));
    return find_in(kernels_of[level], dtype, op, fn_p, err);
}

tc_status
tc_reduce_scale(tc_dtype dtype, void *dst, const void *src, double factor, size_t count,
                tc_error *err)
{
    tc_scale_fn fn;
    int level = TC_ISA_BASELINE;

    TC_TRY(chosen_level(&level, err));
    if ((unsigned)dtype >= TC_DTYPE_COUNT) {
        return refuse_numbers(dtype, TC_REDOP_PREMUL_SUM, err);
    }
    fn = kernels_of[level]->scale[dtype];
    if (fn == NULL) {
        return refuse(dtype, TC_REDOP_PREMUL_SUM, err);
    }
    fn(dst, src, factor, count);
    return TC_OK;
}
