/* SPDX-License-Identifier: BSD-3-Clause */
/* What a small operation executes between its call and its return, counted: the
 * ceilings below keep later work from slowing the path unseen.
 *
 * Rank 1 has always called already, so that rank 0 finds everything there and no poll
 * is in vain. */
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"
#include "support/steps.h"

enum { TURNS = 20, ELEMENTS = 256 };

/* One row: an operation of float32, and the most that it may cost. */
typedef struct row {
    const char *name;
    tc_call call;
    uint64_t instructions;
    uint64_t locked;
} row;

/* Calls that have returned. */
typedef struct shared {
    uint32_t first; /* of rank 1 */
    uint32_t second; /* of rank 0 */
} shared;

static float in[ELEMENTS];
static float out[ELEMENTS];

#define REDUCE_CALL(elements) \
    {.kind = TC_OP_ALL_REDUCE, \
     .dtype = TC_FLOAT32, \
     .redop = TC_REDOP_SUM, \
     .count = (elements), \
     .in = in, \
     .out = in}
#define BROADCAST_CALL(from) \
    {.kind = TC_OP_BROADCAST, \
     .dtype = TC_FLOAT32, \
     .root = (from), \
     .count = 2, \
     .in = in, \
     .out = in}
#define GATHER_CALL \
    {.kind = TC_OP_ALL_GATHER_SINGLE, \
     .dtype = TC_FLOAT32, \
     .count = 2, \
     .in = in, \
     .out_blocks = {.base = out, .count = 2}}
#define MESSAGE_CALL(way, buffer) \
    {.kind = (way), .dtype = TC_FLOAT32, .root = 1, .count = 2, .buffer = in}

/* About a sixth above what gcc 12 makes of it (docs/design/small_path.md); the kernels
 * of 1 KiB also depend on the processor. */
static const row rows[] = {
    {"all_reduce 8 B", REDUCE_CALL(2), 1120, 6},
    {"all_reduce 1 KiB", REDUCE_CALL(256), 1700, 6},
    {"barrier", {.kind = TC_OP_BARRIER}, 780, 6},
    {"all_gather 8 B", GATHER_CALL, 1180, 6},
    {"broadcast 8 B, root", BROADCAST_CALL(0), 930, 6},
    {"broadcast 8 B, other", BROADCAST_CALL(1), 880, 6},
    {"send 8 B", MESSAGE_CALL(TC_OP_SEND, in), 850, 6},
    {"recv 8 B", MESSAGE_CALL(TC_OP_RECV, out), 920, 6},
};

static void
await(const uint32_t *word, uint32_t value)
{
    while (tc_load_seq_cst_u32(word) < value) {
        sched_yield();
    }
}

/* The other side of a call. */
static tc_call
mirror(tc_call call)
{
    if (call.kind == TC_OP_SEND || call.kind == TC_OP_RECV) {
        call.kind = call.kind == TC_OP_SEND ? TC_OP_RECV : TC_OP_SEND;
        call.in = in;
        call.out = in;
        call.root = 0;
    }
    return call;
}

/* Rank 1 calls and then does not move or sleep until rank 0 has called too: waking a
 * sleeper would be a system call. */
static void
call_first(tc_comm *comm, const row *r, shared *both, uint32_t turn)
{
    tc_call call = mirror(r->call);
    tc_work *work;
    tc_error err;
    tc_status status = tc_comm_issue(comm, &call, 0, &work, &err);

    CHECK(status == TC_OK || status == TC_PENDING);
    tc_fetch_add_seq_cst_u32(&both->first, 1);
    await(&both->second, turn);
    if (status == TC_PENDING) {
        CHECK(tc_work_wait(work, TC_DEADLINE_NONE, NULL, &err) == TC_OK);
        tc_work_release(work);
    }
}

static tc_test_steps
call_second(tc_comm *comm, const row *r, shared *both, uint32_t turn)
{
    tc_test_steps steps;
    tc_status status;
    tc_work *work;
    tc_error err;

    await(&both->first, turn);
    tc_test_steps_begin();
    status = tc_comm_issue(comm, &r->call, 0, &work, &err);
    steps = tc_test_steps_end();
    CHECK(status == TC_OK);
    tc_fetch_add_seq_cst_u32(&both->second, 1);
    return steps;
}

/* The engine's thread of rank 1 looks around now and then: to wake it costs extra. */
static tc_test_steps
least(tc_test_steps a, tc_test_steps b)
{
    return a.instructions == 0 || b.instructions < a.instructions ? b : a;
}

static void
check_row(const row *r, const tc_test_steps *steps)
{
    printf("%-22s %4llu instructions, %llu locked\n", r->name,
           (unsigned long long)steps->instructions, (unsigned long long)steps->locked);
    CHECK(steps->instructions > 0 && steps->instructions <= r->instructions);
    CHECK(steps->locked <= r->locked);
    CHECK(steps->pauses == 0 && steps->syscalls == 0 && steps->allocations == 0);
}

static void
body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60.0);
    uint32_t turn = 0;
    tc_error err;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tc_test_steps steps = {0};

        for (int k = 0; k < TURNS; k++) {
            turn++;
            if (self->rank == 1) {
                call_first(comm, &rows[i], self->ctx, turn);
            } else {
                steps = least(steps, call_second(comm, &rows[i], self->ctx, turn));
            }
        }
        if (self->rank == 0 && tc_test_steps_supported()) {
            check_row(&rows[i], &steps);
        }
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

int
main(void)
{
    shared *both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(both != MAP_FAILED);
    tc_test_run_processes(2, body, both, NULL);
    return 0;
}
