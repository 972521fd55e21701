/* SPDX-License-Identifier: BSD-3-Clause */
/* The hooks of a communicator: order, removal, lifetimes, ids, threads. */
#include "core/hooks.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "support/check.h"
#include "support/ranks.h"

enum { THREADS = 4, ROUNDS = 2000, CALLS = 16 };

/* What a hook does when it runs. */
typedef struct probe {
    char *log; /* gets `mark` */
    char mark;
    tc_status status;
    tc_hook *victim; /* removed, unless NULL */
    tc_comm *grows; /* gets another hook, unless NULL */
    uint32_t runs;
    uint32_t released;
} probe;

static void
release_probe(void *ctx)
{
    tc_fetch_add_seq_cst_u32(&((probe *)ctx)->released, 1);
}

static tc_status
run_probe(void *ctx, tc_hook_point point, tc_hook_event *event, tc_error *err);

static tc_hook *
add(tc_comm *comm, tc_hook_point point, probe *p)
{
    tc_hook *hook;
    tc_error err;

    CHECK(tc_hook_add(comm, point, run_probe, (tc_owner){p, release_probe}, &hook,
                      &err) == TC_OK);
    return hook;
}

static tc_status
run_probe(void *ctx, tc_hook_point point, tc_hook_event *event, tc_error *err)
{
    probe *p = ctx;

    CHECK((event == NULL) == (point == TC_HOOK_ABORT));
    CHECK(p->released == 0);
    tc_fetch_add_seq_cst_u32(&p->runs, 1);
    if (p->log != NULL) {
        p->log[strlen(p->log)] = p->mark;
    }
    if (p->victim != NULL) {
        tc_hook_remove(p->victim);
    }
    if (p->grows != NULL) {
        static probe late;

        late = (probe){.log = p->log, .mark = 'L'};
        tc_hook_release(add(p->grows, point, &late));
        p->grows = NULL;
    }
    return p->status != TC_OK ? tc_error_set(err, p->status, "hook %c", p->mark)
                              : TC_OK;
}

static const tc_call barrier = {.kind = TC_OP_BARRIER};

static tc_status
begin(tc_comm *comm, uint64_t *op_id_p, tc_error *err)
{
    tc_hook_event event = {.kind = TC_OP_BARRIER, .call = &barrier};
    tc_status status = tc_hooks_begin(comm, &event, err);

    *op_id_p = event.op_id;
    return status;
}

static void
check_order_and_errors(tc_comm *comm)
{
    char log[CALLS] = {0};
    probe a = {.log = log, .mark = 'a'};
    probe b = {.log = log, .mark = 'b'};
    probe c = {.log = log, .mark = 'c'};
    probe post = {.log = log, .mark = 'P'};
    tc_hook *hooks[4];
    tc_hook_event event = {.kind = TC_OP_BARRIER, .call = &barrier};
    uint64_t first, second;
    tc_error err;

    CHECK(!tc_comm_has_hooks(comm));
    hooks[0] = add(comm, TC_HOOK_PRE, &a);
    hooks[1] = add(comm, TC_HOOK_PRE, &b);
    hooks[2] = add(comm, TC_HOOK_POST, &post);
    hooks[3] = add(comm, TC_HOOK_PRE, &c);
    CHECK(tc_comm_has_hooks(comm));
    CHECK(begin(comm, &first, &err) == TC_OK);
    CHECK(tc_hooks_end(comm, &event, &err) == TC_OK);
    CHECK(strcmp(log, "abcP") == 0);
    b.status = TC_INTERRUPTED;
    memset(log, 0, sizeof(log));
    CHECK(begin(comm, &second, &err) == TC_INTERRUPTED);
    CHECK(strcmp(log, "ab") == 0 && strcmp(err.message, "hook b") == 0);
    CHECK(second == first + 1);
    for (int i = 0; i < 4; i++) {
        tc_hook_remove(hooks[i]);
        tc_hook_remove(hooks[i]);
    }
    CHECK(a.released == 1 && b.released == 1 && c.released == 1 && post.released == 1);
    CHECK(!tc_comm_has_hooks(comm));
    for (int i = 0; i < 4; i++) {
        tc_hook_release(hooks[i]);
    }
}

/* A hook removes itself and the next, and adds one, which waits for its turn. */
static void
check_changes_from_inside(tc_comm *comm)
{
    char log[CALLS] = {0};
    probe next = {.log = log, .mark = 'n'};
    probe self = {.log = log, .mark = 's'};
    probe remover = {.log = log, .mark = 'r', .grows = comm};
    probe last = {.log = log, .mark = 'z'};
    tc_hook *hooks[4];
    uint64_t id;
    tc_error err;

    hooks[0] = add(comm, TC_HOOK_PRE, &self);
    self.victim = hooks[0];
    hooks[1] = add(comm, TC_HOOK_PRE, &remover);
    hooks[2] = add(comm, TC_HOOK_PRE, &next);
    remover.victim = hooks[2];
    hooks[3] = add(comm, TC_HOOK_PRE, &last);
    CHECK(begin(comm, &id, &err) == TC_OK);
    CHECK(strcmp(log, "srz") == 0);
    CHECK(self.released == 1 && next.released == 1 && remover.released == 0);
    CHECK(begin(comm, &id, &err) == TC_OK);
    CHECK(strcmp(log, "srzrzL") == 0);
    for (int i = 0; i < 4; i++) {
        tc_hook_release(hooks[i]);
    }
    tc_hooks_clear(comm);
    CHECK(remover.released == 1 && last.released == 1);
    CHECK(!tc_comm_has_hooks(comm));
}

/* What the checks refuse takes no id and runs nothing. */
static void
check_refusals(tc_comm *comm)
{
    static const tc_call calls[] = {
        {.kind = TC_OP_BROADCAST, .dtype = TC_FLOAT32, .root = 7},
        {.kind = TC_OP_SEND, .dtype = TC_FLOAT32, .root = 0},
        {.kind = TC_OP_ALL_REDUCE, .dtype = TC_FLOAT32, .redop = TC_REDOP_BAND},
        {.kind = TC_OP_BATCH},
    };
    int32_t twice[] = {0, 0};
    tc_split_options split = {.ranks = twice, .rank_count = 2, .name = "twice"};
    probe p = {0};
    tc_hook *hook = add(comm, TC_HOOK_PRE, &p);
    uint64_t first, second;
    tc_hook_event event;
    tc_error err;

    CHECK(begin(comm, &first, &err) == TC_OK);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        event = (tc_hook_event){.kind = calls[i].kind, .call = &calls[i]};
        CHECK(tc_hooks_begin(comm, &event, &err) < 0);
    }
    event = (tc_hook_event){.kind = TC_OP_SPLIT, .split = &split};
    CHECK(tc_hooks_begin(comm, &event, &err) == TC_ERR_INVALID_ARGUMENT);
    CHECK(begin(comm, &second, &err) == TC_OK);
    CHECK(second == first + 1 && p.runs == 2);
    event = (tc_hook_event){.kind = TC_OP_FINALIZE};
    CHECK(tc_hooks_begin(comm, &event, &err) == TC_OK);
    CHECK(event.op_id == TC_OP_ID_FINALIZE);
    CHECK(begin(comm, &first, &err) == TC_OK && first == second + 1);
    tc_hook_remove(hook);
    tc_hook_release(hook);
}

/* For failures, not for refusals; of a work once. */
static void
check_aborts(tc_comm *comm)
{
    probe p = {.status = TC_ERR_INTERNAL};
    probe q = {0};
    tc_hook *hooks[] = {add(comm, TC_HOOK_ABORT, &p), add(comm, TC_HOOK_ABORT, &q)};

    tc_hooks_call_failed(comm, TC_OK);
    tc_hooks_call_failed(comm, TC_INTERRUPTED);
    tc_hooks_call_failed(comm, TC_ERR_INVALID_ARGUMENT);
    tc_hooks_call_failed(comm, TC_ERR_UNSUPPORTED);
    tc_hooks_call_failed(comm, TC_ERR_FINALIZED);
    CHECK(p.runs == 0);
    tc_hooks_call_failed(comm, TC_ERR_TIMEOUT);
    tc_hooks_call_failed(comm, TC_ERR_PEER_DIED);
    CHECK(p.runs == 2 && q.runs == 2);
    for (int i = 0; i < 2; i++) {
        tc_hook_remove(hooks[i]);
        tc_hook_release(hooks[i]);
    }
}

static void
check_work_failure(tc_comm *comm)
{
    probe p = {0};
    tc_hook *hook = add(comm, TC_HOOK_ABORT, &p);
    tc_call call = {.kind = TC_OP_BARRIER, .async = true};
    tc_work *work;
    tc_error err;

    CHECK(tc_comm_issue(comm, &call, 0, &work, &err) == TC_PENDING);
    tc_hooks_work_ended(work);
    CHECK(p.runs == 0);
    tc_comm_abort(comm);
    CHECK(tc_work_wait(work, TC_DEADLINE_NONE, NULL, &err) < 0);
    tc_hooks_work_ended(work);
    tc_hooks_work_ended(work);
    CHECK(p.runs == 1);
    tc_work_release(work);
    tc_hook_remove(hook);
    tc_hook_release(hook);
}

typedef struct crowd {
    tc_comm *comm;
    uint32_t runs;
    uint32_t made;
    uint32_t released;
} crowd;

static tc_status
count_run(void *ctx, tc_hook_point point, tc_hook_event *event, tc_error *err)
{
    (void)point;
    (void)event;
    (void)err;
    tc_fetch_add_seq_cst_u32(&((crowd *)ctx)->runs, 1);
    return TC_OK;
}

static void
count_release(void *ctx)
{
    tc_fetch_add_seq_cst_u32(&((crowd *)ctx)->released, 1);
}

/* Adds, runs, removes, each thread its own way. */
static void *
mix(void *ctx)
{
    crowd *c = ctx;
    uint64_t last = 0;

    for (int i = 0; i < ROUNDS; i++) {
        tc_hook *hook;
        uint64_t id;
        tc_error err;

        CHECK(tc_hook_add(c->comm, TC_HOOK_PRE, count_run, (tc_owner){c, count_release},
                          &hook, &err) == TC_OK);
        tc_fetch_add_seq_cst_u32(&c->made, 1);
        CHECK(begin(c->comm, &id, &err) == TC_OK);
        CHECK(i == 0 || id > last);
        last = id;
        if (i % 7 == 0) {
            tc_hooks_clear(c->comm);
        }
        if (i % 3 != 0) {
            tc_hook_remove(hook);
        }
        tc_hook_release(hook);
    }
    return NULL;
}

static void
check_threads(tc_comm *comm)
{
    crowd c = {.comm = comm};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, mix, &c) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    tc_hooks_clear(comm);
    CHECK(c.made == THREADS * ROUNDS && c.released == c.made);
    CHECK(c.runs > 0);
}

static void
body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60.0);
    probe left = {0};
    tc_hook *hook;
    tc_error err;

    if (self->rank == 0) {
        check_order_and_errors(comm);
        check_changes_from_inside(comm);
        check_refusals(comm);
        check_aborts(comm);
        check_threads(comm);
        check_work_failure(comm);
        tc_fetch_add_seq_cst_u32(self->ctx, 1);
    }
    while (tc_load_seq_cst_u32(self->ctx) == 0) {
        sched_yield();
    }
    (void)tc_comm_finalize(comm, NULL, &err);
    hook = add(comm, TC_HOOK_POST, &left);
    tc_comm_release(comm);
    /* Frees the communicator's hooks; the handle is good all the same. */
    CHECK(left.released == 1);
    tc_hook_remove(hook);
    tc_hook_release(hook);
    CHECK(left.released == 1 && left.runs == 0);
}

int
main(void)
{
    uint32_t through = 0;

    tc_test_run_threads(2, body, &through);
    return 0;
}
