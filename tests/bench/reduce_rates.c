/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates of the reduction kernels, GB/s of output, for each instruction set.
 *
 *   reduce_rates [bytes of a buffer, 262144] [sources, 2]
 *
 * Three buffers of 256 KiB stay in an L2 of 1 MiB and more. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "reduce/reduce.h"

#define MAX_SOURCES 16
/* The best of many short windows, in processor time: a busy machine tells little. */
#define ROUNDS 30
#define WINDOW_NS UINT64_C(300000)

static const char *const isa_names[] = {"baseline", "avx2", "avx512"};

/* Bytes that are small numbers in every type. */
static void
fill(unsigned char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        buffer[i] = (unsigned char)(0x30 + (seed >> 28));
    }
}

static uint64_t
processor_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * TC_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static double
rate(tc_reduce_fn fn, void *dst, const void *const *srcs, int n, size_t count,
     size_t bytes)
{
    uint64_t best = UINT64_MAX;
    int calls = 1;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = processor_ns();
        uint64_t took;

        for (int i = 0; i < calls; i++) {
            fn(dst, srcs, n, count);
        }
        took = processor_ns() - start;
        if (round == 0) {
            calls = (int)(WINDOW_NS / (took + 1)) + 1;
        } else if (took / (uint64_t)calls < best) {
            best = took / (uint64_t)calls;
        }
    }
    return (double)bytes / (double)(best + 1);
}

int
main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 262144;
    int n = argc > 2 ? atoi(argv[2]) : 2;
    const void *srcs[MAX_SOURCES];
    void *dst = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (dst == NULL || n < 1 || n > MAX_SOURCES) {
        fprintf(stderr, "reduce_rates: no memory, or not 1 to 16 sources\n");
        return 1;
    }
    for (int i = 0; i < n; i++) {
        unsigned char *src = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

        if (src == NULL) {
            fprintf(stderr, "reduce_rates: no memory\n");
            return 1;
        }
        fill(src, bytes, (unsigned)i + 1);
        srcs[i] = src;
    }
    printf("| dtype | op | %s | %s | %s |\n|---|---|---|---|---|\n", isa_names[0],
           isa_names[1], isa_names[2]);
    for (int dtype = 0; dtype < TC_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < TC_REDOP_COUNT; op++) {
            tc_reduce_fn fn;
            size_t size = tc_dtype_size((tc_dtype)dtype);

            if (tc_reduce_find((tc_dtype)dtype, (tc_redop)op, &fn, NULL) != TC_OK) {
                continue;
            }
            printf("| %s | %s |", tc_dtype_name((tc_dtype)dtype),
                   tc_redop_name((tc_redop)op));
            for (int level = 0; level < 3; level++) {
                if (tc_reduce_find_isa(level, (tc_dtype)dtype, (tc_redop)op, &fn,
                                       NULL) != TC_OK) {
                    printf(" - |");
                    continue;
                }
                printf(" %.1f |", rate(fn, dst, srcs, n, bytes / size, bytes));
            }
            printf("\n");
        }
    }
    return 0;
}
