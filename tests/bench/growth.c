/* SPDX-License-Identifier: BSD-3-Clause */
/* How cost grows with the number of ranks: start-up, split, barrier, all_reduce.
 *
 *   make -f csrc/build.mk lib
 *   cc -O2 -D_GNU_SOURCE -Icsrc -Icsrc/include -Itests/c tests/bench/growth.c \
 *       tests/c/support/ranks.c build/release/libtorchcomms.a -lm -ldl -pthread \
 *       -o growth && ./growth 2 4 8 16 32 64
 *
 * Ranks are processes. Start-up: from the moment all processes are there until the
 * last one has its communicator; the others: of a rank's call, median of rounds. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"

enum { ROUNDS = 15, CALLS = 20 };

#define MOST ((size_t)1 << 20)

/* Between the processes. */
typedef struct shared {
    uint32_t there;
    uint32_t ready;
    uint64_t start_ns;
    uint64_t last_ns;
} shared;

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median_us(tc_comm *comm, const tc_call *call)
{
    double us[ROUNDS];
    tc_error err;

    for (int k = 0; k < ROUNDS; k++) {
        uint64_t start = tc_clock_ns();

        for (int i = 0; i < CALLS; i++) {
            CHECK(tc_test_call(comm, call, &err) == TC_OK);
        }
        us[k] = (double)(tc_clock_ns() - start) / 1e3 / CALLS;
    }
    qsort(us, ROUNDS, sizeof(us[0]), compare);
    return us[ROUNDS / 2];
}

/* All processes leave together; the first to do so starts the clock. */
static void
gather(shared *s, int32_t size)
{
    tc_fetch_add_seq_cst_u32(&s->there, 1);
    while (tc_load_seq_cst_u32(&s->there) < (uint32_t)size) {
        sched_yield();
    }
    if (tc_load_acquire_u64(&s->start_ns) == 0) {
        tc_store_release_u64(&s->start_ns, tc_clock_ns());
    }
}

static void
body(tc_test_rank *self)
{
    static const uint64_t counts[] = {2, 1024, 16384, MOST / 4};
    shared *s = self->ctx;
    float *buf = calloc(1, MOST);
    tc_call barrier = {.kind = TC_OP_BARRIER};
    double us[5];
    double start_ms;
    tc_comm *comm;
    tc_error err;

    CHECK(buf != NULL);
    gather(s, self->size);
    comm = tc_test_comm(self, 120);
    tc_fetch_add_seq_cst_u32(&s->ready, 1);
    while (tc_load_seq_cst_u32(&s->ready) < (uint32_t)self->size) {
        sched_yield();
    }
    start_ms = (double)(tc_clock_ns() - tc_load_acquire_u64(&s->start_ns)) / 1e6;
    us[0] = median_us(comm, &barrier);
    for (int i = 0; i < 4; i++) {
        tc_call call = {.kind = TC_OP_ALL_REDUCE,
                        .dtype = TC_FLOAT32,
                        .redop = TC_REDOP_SUM,
                        .count = counts[i],
                        .in = buf,
                        .out = buf};

        us[1 + i] = median_us(comm, &call);
    }
    if (self->rank == 0) {
        printf("| %d | %.1f | %.1f | %.1f | %.1f | %.0f | %.0f |\n", self->size,
               start_ms, us[0], us[1], us[2], us[3], us[4]);
        fflush(stdout);
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
    free(buf);
}

int
main(int argc, char **argv)
{
    puts("| ranks | start-up ms | barrier us | all_reduce us: 8 B | 4 KiB | 64 KiB |"
         " 1 MiB |");
    puts("|---|---|---|---|---|---|---|");
    fflush(stdout);
    for (int i = 1; i < argc; i++) {
        shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        CHECK(s != MAP_FAILED);
        tc_test_run_processes(atoi(argv[i]), body, s, NULL);
        munmap(s, sizeof(*s));
    }
    return 0;
}
