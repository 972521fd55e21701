/* SPDX-License-Identifier: BSD-3-Clause */
/* Death, abort, disagreement, deadlines, leaving: every rank ends with the right error.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "core/object.h"
#include "support/check.h"
#include "support/ranks.h"

static void
nap(double seconds)
{
    struct timespec t = {(time_t)seconds,
                         (long)((seconds - (double)(long)seconds) * 1e9)};

    nanosleep(&t, NULL);
}

/* Ranks that are threads meet at a counter, outside of what is tested. */
static void
arrive(tc_test_rank *self)
{
    tc_fetch_add_seq_cst_u32(self->ctx, 1);
}

static void
await(const tc_test_rank *self, uint32_t count)
{
    while (tc_load_seq_cst_u32(self->ctx) < count) {
        nap(0.001);
    }
}

static tc_call
sum_call(int64_t *buf, uint64_t count)
{
    return (tc_call){.kind = TC_OP_ALL_REDUCE,
                     .dtype = TC_INT64,
                     .redop = TC_REDOP_SUM,
                     .count = count,
                     .in = buf,
                     .out = buf};
}

static void
expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fprintf(stderr, "'%s' lacks '%s'\n", text, part);
        exit(1);
    }
}

/* The victim kills itself inside a storm of operations, small or large by the seed. */
typedef struct storm {
    int32_t victim;
    uint64_t after_ns;
    uint64_t count;
} storm;

static void *
executioner(void *arg)
{
    const storm *s = arg;

    nap((double)s->after_ns / 1e9);
    raise(SIGKILL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void
storm_body(tc_test_rank *self)
{
    const storm *s = self->ctx;
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t *buf = calloc(s->count, sizeof(*buf));
    tc_call call = sum_call(buf, s->count);
    tc_status status = TC_OK;
    tc_error err;
    pthread_t thread;
    char name[32];

    CHECK(buf != NULL);
    if (self->rank == s->victim) {
        CHECK(pthread_create(&thread, NULL, executioner, (void *)s) == 0);
    }
    while (status == TC_OK) {
        status = tc_test_call(comm, &call, &err);
    }
    CHECK(status == TC_ERR_PEER_DIED);
    snprintf(name, sizeof(name), "rank %d (pid", s->victim);
    expect(err.message, name);
    /* Later calls fail alike, and leaving works. */
    CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_DIED);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_ERR_BROKEN);
    tc_comm_release(comm);
    free(buf);
}

static void
test_kills(void)
{
    unsigned seed = 1;

    for (int round = 0; round < 24; round++) {
        int32_t size = 2 + round % 3;
        int statuses[4];
        storm s = {
            .victim = (int32_t)(rand_r(&seed) % (unsigned)size),
            .after_ns = (uint64_t)(rand_r(&seed) % 20000) * 1000,
            .count = round % 2 == 0 ? 4 : 100000,
        };

        tc_test_run_processes(size, storm_body, &s, statuses);
        for (int32_t r = 0; r < size; r++) {
            if (r == s.victim) {
                CHECK(WIFSIGNALED(statuses[r]) && WTERMSIG(statuses[r]) == SIGKILL);
            } else {
                CHECK(WIFEXITED(statuses[r]) && WEXITSTATUS(statuses[r]) == 0);
            }
        }
    }
}

/* Rank 1 makes another call than the others; every rank is told both. */
static void
mismatch_body(tc_test_rank *self)
{
    int which = *(int *)self->ctx;
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t *buf = calloc(200000, sizeof(*buf));
    tc_call call = sum_call(buf, which == 1 ? 200000 : 8);
    tc_error err;
    tc_status status;

    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    if (self->rank == 1) {
        switch (which) {
        case 0:
            call.dtype = TC_FLOAT64;
            break;
        case 1:
            call.count = 8; /* the others take the other path */
            break;
        case 2:
            call.kind = TC_OP_BARRIER;
            break;
        case 3:
            call.redop = TC_REDOP_MAX;
            break;
        default:
            call.kind = TC_OP_BROADCAST;
            call.root = 1;
            break;
        }
    }
    status = tc_test_call(comm, &call, &err);
    if (status == TC_OK) {
        /* A broadcast's root had all it needed: it learns with its next call. */
        CHECK(which == 4 && self->rank == 1);
        call = sum_call(buf, 8);
        status = tc_test_call(comm, &call, &err);
    }
    if (status != TC_ERR_MISMATCH) {
        fprintf(stderr, "case %d rank %d: %s\n", which, self->rank, err.message);
        exit(1);
    }
    expect(err.message, "called all_reduce of ");
    if (which == 0) {
        expect(err.message, "all_reduce of 8 int64 with SUM");
        expect(err.message, "all_reduce of 8 float64 with SUM");
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_ERR_BROKEN);
    tc_comm_release(comm);
    free(buf);
}

/* Two roots that needed nobody, and no call after: whoever leaves last is told. */
static void
unnoticed_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {0};
    tc_call call = {.kind = TC_OP_BROADCAST,
                    .dtype = TC_INT64,
                    .root = self->rank,
                    .count = 4,
                    .in = buf,
                    .out = buf};
    tc_error err;

    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    arrive(self);
    if (self->rank == 0) {
        await(self, 2);
        CHECK(tc_comm_finalize(comm, NULL, &err) == TC_ERR_BROKEN);
        expect(err.message, "rank 0 called broadcast of 4 int64, root 0, rank 1 called "
                            "broadcast of 4 int64, root 1");
    }
    tc_comm_release(comm);
}

/* Rank 1 does not come: the others name it at the deadline, and it learns too. */
static void
timeout_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 0.3);
    int64_t buf[4] = {0};
    tc_call call = sum_call(buf, 4);
    tc_error err;
    tc_status status;

    if (self->rank == 1) {
        await(self, (uint32_t)self->size - 1);
    }
    status = tc_test_call(comm, &call, &err);
    arrive(self);
    CHECK(status == TC_ERR_TIMEOUT);
    expect(err.message, "rank 1 had not called it");
    tc_comm_release(comm);
}

/* A finite wait leaves the work alone. */
static void
finite_wait_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {1, 2, 3, 4};
    tc_call call = sum_call(buf, 4);
    tc_work *work;
    tc_error err;

    if (self->rank == 0) {
        call.async = true;
        CHECK(tc_comm_issue(comm, &call, 0, &work, &err) == TC_PENDING);
        CHECK(tc_work_wait(work, 50 * TC_NSEC_PER_MSEC, NULL, &err) == TC_EXPIRED);
        CHECK(tc_work_get_state(work) == TC_WORK_INPROGRESS);
        arrive(self);
        CHECK(tc_work_wait(work, TC_DEADLINE_NONE, NULL, &err) == TC_OK);
        CHECK(tc_work_get_state(work) == TC_WORK_COMPLETED);
        tc_work_release(work);
    } else {
        await(self, 1);
        CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    }
    CHECK(buf[3] == 4 * self->size);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

static bool
always(void *ctx)
{
    ++*(int *)ctx;
    return true;
}

/* An interrupted wait leaves the operation to the engine; the communicator goes on. */
static void
interrupt_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {1, 2, 3, 4};
    tc_call call = sum_call(buf, 4);
    tc_work *work = NULL;
    tc_error err;
    int asked = 0;
    tc_interrupt interrupt = {always, &asked};

    if (self->rank == 0) {
        CHECK(tc_comm_issue(comm, &call, 0, &work, &err) == TC_PENDING);
        CHECK(tc_work_wait(work, TC_DEADLINE_NONE, &interrupt, &err) == TC_INTERRUPTED);
        CHECK(asked == 1);
        arrive(self);
        while (tc_work_get_state(work) == TC_WORK_INPROGRESS) {
            nap(0.001); /* nobody waits: the engine alone moves it */
        }
        CHECK(tc_work_result(work, &err) == TC_OK);
        tc_work_release(work);
    } else {
        await(self, 1);
        CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    }
    CHECK(buf[3] == 4 * self->size);
    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* One rank aborts while the others wait. */
static void
abort_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {0};
    tc_call call = sum_call(buf, 4);
    tc_error err;

    if (self->rank == 1) {
        nap(0.05);
        tc_comm_abort(comm);
        tc_comm_abort(comm);
        CHECK(tc_comm_is_aborted(comm));
    }
    CHECK(tc_test_call(comm, &call, &err) == TC_ERR_ABORTED);
    expect(err.message, "rank 1 aborted it");
    tc_comm_release(comm);
}

/* Rank 1 leaves in order; who still needs it is told, who does not is not. */
static void
leave_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {0};
    tc_call call = sum_call(buf, 4);
    tc_error err;

    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    if (self->rank == 1) {
        CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_FINALIZED);
    } else {
        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_CLOSED);
        expect(err.message, "rank 1 (pid");
        expect(err.message, "has left the communicator");
    }
    tc_comm_release(comm);
}

/* Bad calls are refused on the rank that made them and can be repeated rightly. */
static void
refusal_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {1, 1, 1, 1};
    tc_call call = sum_call(buf, 4);
    tc_call bad = call;
    tc_error err;

    bad.kind = TC_OP_BROADCAST;
    bad.root = self->size;
    CHECK(tc_test_call(comm, &bad, &err) == TC_ERR_INVALID_ARGUMENT);
    expect(err.message, "root must be in range [0, ");
    bad = call;
    bad.dtype = TC_FLOAT32;
    bad.redop = TC_REDOP_BAND;
    CHECK(tc_test_call(comm, &bad, &err) == TC_ERR_UNSUPPORTED);
    expect(err.message, "Cannot use ReduceOp.BAND with non-integral dtype float32");
    bad = call;
    bad.kind = TC_OP_SEND;
    bad.root = self->rank;
    CHECK(tc_test_call(comm, &bad, &err) == TC_ERR_INVALID_ARGUMENT);
    expect(err.message, "Cannot send to self");
    bad = call;
    bad.count = UINT64_MAX / 8;
    CHECK(tc_test_call(comm, &bad, &err) == TC_ERR_INVALID_ARGUMENT);
    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    CHECK(buf[0] == self->size);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* A rank that waits sleeps: CPU time is counted, not time. */
static void
idle_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {0};
    tc_call call = sum_call(buf, 4);
    struct rusage before;
    struct rusage after;
    tc_error err;
    double used;

    if (self->rank == 1) {
        nap(2);
    }
    getrusage(RUSAGE_SELF, &before);
    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    getrusage(RUSAGE_SELF, &after);
    used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
           (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6 +
           (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
           (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
    CHECK(used < 0.1);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

static void
stay_on_cpu(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* Two ranks that come to share a core after the start stop spinning at each other. Not
 * under a sanitizer, which stretches a full spin beyond a time slice: then it pays. */
static void
shared_core_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t *buf = calloc(100000, sizeof(*buf));
    tc_call call = sum_call(buf, 100000);
    const tc_membership *members = comm->membership;
    tc_parking parking;
    uint32_t least = UINT32_MAX;
    tc_error err;

    CHECK(buf != NULL);
    buf[0] = self->rank == 0 ? sched_getcpu() : 0;
    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    stay_on_cpu((int)buf[0]);
    comm->backend->parking(members->ctx, &parking);
    for (int i = 0; i < 30; i++) {
        CHECK(tc_test_call(comm, &call, &err) == TC_OK);
        least = members->spins < least ? members->spins : least;
    }
    CHECK(SANITIZED || parking.spins == 0 || least <= parking.spins / 4);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
    free(buf);
}

/* A child of the process that made the communicator may only drop it. */
static void
fork_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int64_t buf[4] = {1, 1, 1, 1};
    tc_call call = sum_call(buf, 4);
    tc_error err;
    int status;
    pid_t pid;

    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    pid = fork();
    if (pid == 0) {
        CHECK(tc_test_call(comm, &call, &err) == TC_ERR_FORKED);
        tc_comm_release(comm);
        tc_engine_destroy(self->engine);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
          WEXITSTATUS(status) == 0);
    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

static void
run_met(int32_t size, tc_test_body body)
{
    uint32_t counter = 0;

    tc_test_run_threads(size, body, &counter);
}

int
main(void)
{
    for (int which = 0; which < 5; which++) {
        tc_test_run_threads(2, mismatch_body, &which);
        tc_test_run_threads(3, mismatch_body, &which);
    }
    run_met(2, unnoticed_body);
    run_met(3, timeout_body);
    run_met(2, finite_wait_body);
    run_met(3, interrupt_body);
    tc_test_run_threads(3, abort_body, NULL);
    tc_test_run_threads(3, leave_body, NULL);
    tc_test_run_threads(3, refusal_body, NULL);
    tc_test_run_processes(2, idle_body, NULL, NULL);
    tc_test_run_processes(2, shared_core_body, NULL, NULL);
    tc_test_run_processes(2, fork_body, NULL, NULL);
    test_kills();
    return 0;
}
