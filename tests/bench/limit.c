/* SPDX-License-Identifier: BSD-3-Clause */
/* Floor for collectives on host memory: two processes, no synchronisation inside. */

/* The memory traffic no algorithm can avoid, and one cache line handed over and back.
 * build: cc -O3 -march=native limit.c -o limit
 * usage: limit [BYTES ... | line]; without sizes 64 KiB to 64 MiB, `line` the line
 * alone prints JSON lines {"peer":"limit","op":..,"ranks":2,"bytes":..,"us_med":..} */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)64 << 20)

struct lines {
    _Alignas(128) _Atomic unsigned ping;
    _Alignas(128) _Atomic unsigned pong;
    _Alignas(128) _Atomic unsigned bar;
};

struct rank {
    int number;
    unsigned barriers;
    struct lines *lines;
    float *shared; /* both ranks' */
    float *mine;
    float *dst;
};

static double
now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static void *
map_shared(size_t bytes)
{
    void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static float *
allocate(size_t bytes)
{
    float *p = aligned_alloc(4096, bytes);

    if (p == NULL) {
        perror("aligned_alloc");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static void
barrier(struct rank *self)
{
    self->barriers++;
    atomic_fetch_add(&self->lines->bar, 1);
    while (atomic_load(&self->lines->bar) < 2 * self->barriers) {
        __builtin_ia32_pause();
    }
}

static void
hand_over(_Atomic unsigned *line, unsigned x)
{
    atomic_store_explicit(line, x, memory_order_release);
}

static void
await(_Atomic unsigned *line, unsigned x)
{
    while (atomic_load_explicit(line, memory_order_acquire) < x) {
    }
}

static void
measure_line(struct rank *self)
{
    enum { ROUNDS = 5, HANDOVERS = 200000 };
    double us[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        double start = now_us();

        for (int j = 1; j <= HANDOVERS; j++) {
            unsigned x = (unsigned)(i * HANDOVERS + j);

            if (self->number == 0) {
                hand_over(&self->lines->ping, x);
                await(&self->lines->pong, x);
            } else {
                await(&self->lines->ping, x);
                hand_over(&self->lines->pong, x);
            }
        }
        us[i] = (now_us() - start) / HANDOVERS;
    }
    if (self->number == 0) {
        printf("{\"peer\":\"limit\",\"op\":\"line_round_trip\",\"ranks\":2,\"bytes\":8,"
               "\"us_med\":%.4f}\n",
               median(us, ROUNDS));
        fflush(stdout);
    }
}

/* Half of the sum is computed, the other half read from the peer. */
static void
reduce_half(struct rank *self, size_t elements)
{
    size_t half = elements / 2;
    float *own = self->shared + (size_t)self->number * (MOST_BYTES / 4);
    float *peer = self->shared + (size_t)(1 - self->number) * (MOST_BYTES / 4);
    float *restrict sum = own + (size_t)self->number * half;
    const float *restrict x = self->mine + (size_t)self->number * half;
    const float *restrict y = peer + (size_t)self->number * half;
    size_t other = (size_t)(1 - self->number) * half;

    for (size_t e = 0; e < half; e++) {
        sum[e] = x[e] + y[e];
    }
    memcpy(self->dst + other, peer + other, half * sizeof(float));
}

static void
copy_all(struct rank *self, size_t elements)
{
    float *peer = self->shared + (size_t)(1 - self->number) * (MOST_BYTES / 4);

    memcpy(self->dst, peer, elements * sizeof(float));
}

static void
measure_bytes(struct rank *self, const char *op, size_t bytes, int iterations,
              void (*work)(struct rank *, size_t))
{
    enum { ROUNDS = 7 };
    double us[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        double start;

        barrier(self);
        start = now_us();
        for (int j = 0; j < iterations; j++) {
            work(self, bytes / sizeof(float));
        }
        barrier(self);
        us[i] = (now_us() - start) / iterations;
    }
    if (self->number == 0) {
        printf("{\"peer\":\"limit\",\"op\":\"%s\",\"ranks\":2,\"bytes\":%zu,"
               "\"us_med\":%.2f}\n",
               op, bytes, median(us, ROUNDS));
        fflush(stdout);
    }
}

static void
pin_to(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static int
iterations(size_t bytes)
{
    size_t most = ((size_t)256 << 20) / bytes;

    return most < 6 ? 6 : most > 20000 ? 20000 : (int)most;
}

static void
measure_size(struct rank *self, size_t bytes)
{
    measure_bytes(self, "all_reduce", bytes, iterations(bytes), reduce_half);
    measure_bytes(self, "copy", bytes, iterations(bytes), copy_all);
}

/* 0 where `text` is no size that can be measured. */
static size_t
parse_bytes(const char *text)
{
    char *end;
    unsigned long long bytes = strtoull(text, &end, 10);

    return *end == '\0' && bytes >= 2 * sizeof(float) && bytes <= MOST_BYTES ? bytes
                                                                             : 0;
}

static void
measure_sizes(struct rank *self, int count, char **texts)
{
    static const size_t usual[] = {65536, 1 << 20, 16 << 20, 64 << 20};

    for (size_t i = 0; count == 0 && i < sizeof(usual) / sizeof(usual[0]); i++) {
        measure_size(self, usual[i]);
    }
    for (int i = 0; i < count; i++) {
        measure_size(self, parse_bytes(texts[i]));
    }
}

int
main(int argc, char **argv)
{
    bool line_only = argc == 2 && strcmp(argv[1], "line") == 0;
    struct rank self = {0};

    for (int i = 1; i < argc && !line_only; i++) {
        if (parse_bytes(argv[i]) == 0) {
            fprintf(stderr, "'%s' is neither `line` nor a size from 8 to %zu\n",
                    argv[i], MOST_BYTES);
            return 2;
        }
    }
    self.lines = map_shared(4096);
    self.shared = map_shared(2 * MOST_BYTES);
    memset(self.shared, 0, 2 * MOST_BYTES);
    self.number = fork() == 0;
    if (self.number == 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    pin_to(self.number);
    self.mine = allocate(MOST_BYTES);
    self.dst = allocate(MOST_BYTES);
    barrier(&self);
    measure_line(&self);
    if (!line_only) {
        measure_sizes(&self, argc - 1, argv + 1);
    }
    if (self.number == 0) {
        wait(NULL);
    }
    return 0;
}
