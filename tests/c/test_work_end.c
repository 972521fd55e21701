/* SPDX-License-Identifier: BSD-3-Clause */
/* What a work tells at its end: the function that runs once, and the source of a recv.
 */
#include <sched.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"

enum { ROUNDS = 300 };

typedef struct ending {
    tc_work_watch watch;
    tc_work *work;
    uint32_t runs;
    uint32_t ended; /* the work's state was final whenever the function ran */
} ending;

static void
count_run(void *ctx)
{
    ending *e = ctx;

    if (tc_work_get_state(e->work) == TC_WORK_COMPLETED) {
        tc_fetch_add_seq_cst_u32(&e->ended, 1);
    }
    tc_fetch_add_seq_cst_u32(&e->runs, 1);
}

static void
await(const uint32_t *word, uint32_t value)
{
    while (tc_load_seq_cst_u32(word) < value) {
        sched_yield();
    }
}

/* Rank 0 calls first and attaches while rank 1 arrives: before, at and after the end.
 */
static void
attach_around_the_end(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 30.0);
    int64_t value;
    tc_call call = {.kind = TC_OP_ALL_REDUCE,
                    .dtype = TC_INT64,
                    .redop = TC_REDOP_SUM,
                    .async = true,
                    .count = 1,
                    .in = &value,
                    .out = &value};
    tc_error err;

    for (int i = 0; i < ROUNDS; i++) {
        ending e = {0};
        tc_status status;

        value = self->rank + 1;
        status = tc_comm_issue(comm, &call, 0, &e.work, &err);
        if (status == TC_OK) {
            CHECK(value == 3);
            continue;
        }
        CHECK(status == TC_PENDING);
        if (i % 3 == 0) {
            CHECK(tc_work_wait(e.work, TC_DEADLINE_NONE, NULL, &err) == TC_OK);
        } else if (i % 3 == 1) {
            sched_yield();
        }
        e.watch = (tc_work_watch){count_run, &e, NULL};
        tc_work_on_end(e.work, &e.watch);
        CHECK(i % 3 != 0 || e.runs == 1);
        CHECK(tc_work_wait(e.work, TC_DEADLINE_NONE, NULL, &err) == TC_OK);
        await(&e.runs, 1);
        CHECK(e.ended == 1);
        CHECK(value == 3);
        tc_work_release(e.work);
        CHECK(e.runs == 1);
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* The one that is attached to a work which fails runs, too. */
static void
attach_to_a_failure(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 30.0);
    ending e = {0};
    tc_call call = {.kind = TC_OP_BARRIER, .async = true};
    tc_error err;

    if (self->rank == 0) {
        CHECK(tc_comm_issue(comm, &call, 0, &e.work, &err) == TC_PENDING);
        e.watch = (tc_work_watch){count_run, &e, NULL};
        tc_work_on_end(e.work, &e.watch);
        CHECK(e.runs == 0);
        tc_comm_abort(comm);
        await(&e.runs, 1);
        CHECK(tc_work_get_state(e.work) == TC_WORK_ERROR);
        tc_work_release(e.work);
        tc_fetch_add_seq_cst_u32(self->ctx, 1);
    }
    await(self->ctx, 1);
    (void)tc_comm_finalize(comm, NULL, &err);
    tc_comm_release(comm);
}

static void
ask_for_the_source(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 30.0);
    int32_t value = self->rank, source;
    tc_call send = {.kind = TC_OP_SEND, .dtype = TC_INT32, .count = 1, .in = &value};
    tc_call recv = {.kind = TC_OP_RECV,
                    .dtype = TC_INT32,
                    .root = TC_ANY_SOURCE,
                    .count = 1,
                    .out = &value,
                    .source = &source};
    int32_t seen = 0;
    tc_error err;

    if (self->rank == 0) {
        for (int32_t i = 1; i < self->size; i++) {
            source = -7;
            CHECK(tc_test_call(comm, &recv, &err) == TC_OK);
            CHECK(source == value);
            seen |= 1 << source;
        }
        CHECK(seen == (1 << self->size) - 2);
    } else {
        CHECK(tc_test_call(comm, &send, &err) == TC_OK);
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

int
main(void)
{
    uint32_t failed = 0;

    tc_test_run_threads(2, attach_around_the_end, NULL);
    tc_test_run_threads(2, attach_to_a_failure, &failed);
    tc_test_run_threads(4, ask_for_the_source, NULL);
    return 0;
}
