/* SPDX-License-Identifier: BSD-3-Clause */
/* Times all_reduce of the C core between processes; usage: core_rates [ranks]. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    size_t most = (size_t)64 << 20;
    float *buf = aligned_alloc(4096, most);
    tc_error err;

    CHECK(buf != NULL);
    for (size_t i = 0; i < most / 4; i++) {
        buf[i] = 0;
    }
    for (size_t bytes = 8; bytes <= most; bytes *= bytes < 1024 ? 16 : 8) {
        double rounds[7];
        int n = bytes <= 1024      ? 20000
                : bytes <= 65536   ? 2000
                : bytes <= 1 << 20 ? 200
                                   : 5;
        tc_call call = {.kind = TC_OP_ALL_REDUCE,
                        .dtype = TC_FLOAT32,
                        .redop = TC_REDOP_SUM,
                        .count = bytes / 4,
                        .in = buf,
                        .out = buf};

        n = self->size > 2 ? n / 20 + 2 : n;
        for (int k = 0; k < 7; k++) {
            uint64_t start = tc_clock_ns();

            for (int i = 0; i < n; i++) {
                CHECK(tc_test_call(comm, &call, &err) == TC_OK);
            }
            rounds[k] = (double)(tc_clock_ns() - start) / 1e3 / n;
        }
        qsort(rounds, 7, sizeof(rounds[0]), compare);
        if (self->rank == 0) {
            printf("all_reduce %9zu bytes %12.3f us\n", bytes, rounds[3]);
            fflush(stdout);
        }
    }
    free(buf);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

int
main(int argc, char **argv)
{
    tc_test_run_processes(argc > 1 ? atoi(argv[1]) : 2, body, NULL, NULL);
    return 0;
}
