/* SPDX-License-Identifier: BSD-3-Clause */
/* Round trips of send and recv between two processes, medians.
 *
 *   make -f csrc/build.mk lib
 *   cc -O2 -D_GNU_SOURCE -Icsrc -Icsrc/include -Itests/c tests/bench/p2p_rates.c \
 *       tests/c/support/ranks.c build/release/libtorchcomms.a -lm -ldl -pthread \
 *       -o build/p2p_rates && build/p2p_rates
 *
 * The machine moves under a benchmark (engine facts, section 0): the round trip of a
 * bare cache line between the same two processes is printed beside each row. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/line.h"
#include "support/check.h"
#include "support/ranks.h"

enum { ROUNDS = 101, MOST = 4 << 20 };

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

static double
line_round_trip_us(const tc_test_rank *self)
{
    double ns;
    tc_error err;

    CHECK(tc_line_round_trip(self->ctx, self->rank == 0, 60 * TC_NSEC_PER_SEC, &ns,
                             &err) == TC_OK);
    return ns / 1000.0;
}

static void
trip(tc_comm *comm, int32_t rank, uint8_t *buf, uint64_t bytes)
{
    tc_call send = {.kind = TC_OP_SEND,
                    .dtype = TC_UINT8,
                    .root = 1 - rank,
                    .count = bytes,
                    .in = buf};
    tc_call recv = {.kind = TC_OP_RECV,
                    .dtype = TC_UINT8,
                    .root = 1 - rank,
                    .count = bytes,
                    .out = buf};
    tc_error err;

    CHECK(tc_test_call(comm, rank == 0 ? &send : &recv, &err) == TC_OK);
    CHECK(tc_test_call(comm, rank == 0 ? &recv : &send, &err) == TC_OK);
}

static void
body(tc_test_rank *self)
{
    static const uint64_t sizes[] = {8,        1 << 10, 4 << 10, 16 << 10,
                                     64 << 10, 1 << 20, MOST};
    tc_comm *comm = tc_test_comm(self, 60);
    uint8_t *buf = malloc(MOST);
    double times[ROUNDS];
    double lines[ROUNDS];

    CHECK(buf != NULL);
    memset(buf, 1, MOST);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int burst = sizes[s] <= 16 << 10 ? 200 : sizes[s] <= 64 << 10 ? 50 : 5;

        for (int round = 0; round < ROUNDS; round++) {
            uint64_t start;

            lines[round] = line_round_trip_us(self);
            trip(comm, self->rank, buf, sizes[s]);
            start = tc_clock_ns();
            for (int i = 0; i < burst; i++) {
                trip(comm, self->rank, buf, sizes[s]);
            }
            times[round] = (double)(tc_clock_ns() - start) / 1000.0 / burst;
        }
        if (self->rank == 0) {
            double at = median(times, ROUNDS);

            printf("%8llu bytes: %8.2f us a round trip (fastest quarter %.2f), line "
                   "%.2f us\n",
                   (unsigned long long)sizes[s], at, times[ROUNDS / 4],
                   median(lines, ROUNDS));
        }
    }
    free(buf);
    tc_comm_release(comm);
}

int
main(void)
{
    void *line =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(line != MAP_FAILED);
    tc_test_run_processes(2, body, line, NULL);
    return 0;
}
