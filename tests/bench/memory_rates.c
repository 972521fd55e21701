/* SPDX-License-Identifier: BSD-3-Clause */
/* Times large collectives in the backend's memory, in turns with private memory.
 *
 *   make -f csrc/build.mk lib
 *   cc -O2 -D_GNU_SOURCE -Icsrc -Icsrc/include -Itests/c tests/bench/memory_rates.c \
 *       tests/c/support/ranks.c build/release/libtorchcomms.a -lm -ldl -pthread \
 *       -o memory_rates && ./memory_rates 2
 *
 * The argument is the number of ranks. Ratios are those of each turn, their median. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "core/memory.h"
#include "support/check.h"
#include "support/ranks.h"

enum { ROUNDS = 15 };

#define MOST ((size_t)64 << 20)

typedef struct memory {
    char *in;
    char *out;
} memory;

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(double *values)
{
    qsort(values, ROUNDS, sizeof(values[0]), compare);
    return values[ROUNDS / 2];
}

/* `bytes` of the larger side. */
static tc_call
make_call(tc_op_kind kind, const memory *m, size_t bytes, int32_t size)
{
    tc_call call = {.kind = kind, .dtype = TC_FLOAT32, .redop = TC_REDOP_SUM};
    uint64_t block = bytes / 4 / (uint64_t)size;

    call.count = kind == TC_OP_ALL_REDUCE ? bytes / 4 : block;
    if (kind == TC_OP_REDUCE_SCATTER_SINGLE) {
        call.in_blocks = (tc_blocks){.base = m->in, .count = block};
    } else {
        call.in = m->in;
    }
    if (kind == TC_OP_ALL_GATHER_SINGLE) {
        call.out_blocks = (tc_blocks){.base = m->out, .count = block};
    } else {
        call.out = m->out;
    }
    return call;
}

static double
time_calls(tc_comm *comm, const tc_call *call, int n)
{
    uint64_t start = tc_clock_ns();
    tc_error err;

    for (int i = 0; i < n; i++) {
        CHECK(tc_test_call(comm, call, &err) == TC_OK);
    }
    return (double)(tc_clock_ns() - start) / 1e3 / n;
}

static void
measure(tc_comm *comm, tc_op_kind kind, const memory m[2], size_t bytes)
{
    double us[2][ROUNDS];
    double ratios[ROUNDS];
    int n = (int)(MOST / bytes / 2) + 1;

    for (int k = -1; k < ROUNDS; k++) {
        for (int heap = 0; heap < 2; heap++) {
            tc_call call = make_call(kind, &m[heap], bytes, tc_comm_size(comm));
            double t = time_calls(comm, &call, n);

            if (k >= 0) {
                us[heap][k] = t;
            }
        }
        if (k >= 0) {
            ratios[k] = us[1][k] / us[0][k];
        }
    }
    if (tc_comm_rank(comm) == 0) {
        printf("%-22s %9zu bytes  private %9.1f us  heap %9.1f us  ratio %.2f\n",
               tc_op_name(kind), bytes, median(us[0]), median(us[1]), median(ratios));
        fflush(stdout);
    }
}

static void
body(tc_test_rank *self)
{
    static const tc_op_kind kinds[] = {TC_OP_ALL_REDUCE, TC_OP_ALL_GATHER_SINGLE,
                                       TC_OP_REDUCE_SCATTER_SINGLE};
    tc_comm *comm = tc_test_comm(self, 60);
    memory m[2] = {{aligned_alloc(4096, MOST), aligned_alloc(4096, MOST)}};
    tc_memory taken[2];
    tc_error err;

    for (int i = 0; i < 2; i++) {
        CHECK(tc_comm_memory_alloc(comm, MOST, &taken[i], &err) == TC_OK);
    }
    m[1] = (memory){taken[0].ptr, taken[1].ptr};
    for (int heap = 0; heap < 2; heap++) {
        CHECK(m[heap].in != NULL && m[heap].out != NULL);
        memset(m[heap].in, 0, MOST);
        memset(m[heap].out, 0, MOST);
    }
    for (int k = 0; k < 3; k++) {
        for (size_t bytes = MOST >> 6; bytes <= MOST; bytes *= 4) {
            measure(comm, kinds[k], m, bytes);
        }
    }
    for (int i = 0; i < 2; i++) {
        taken[i].release(taken[i].ctx);
    }
    free(m[0].in);
    free(m[0].out);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

int
main(int argc, char **argv)
{
    tc_test_run_processes(argc > 1 ? atoi(argv[1]) : 2, body, NULL, NULL);
    return 0;
}
