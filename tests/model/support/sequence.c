/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that make sequences of calls. */
#include "model/support/sequence.h"

#include <stdio.h>
#include <string.h>

/* Shared by the ranks' threads. */
typedef struct stage {
    const sequence *s;
    world *w;
    uint32_t chosen[SEQUENCE_OPS]; /* 0: not yet; else the choice + 1 */
    op_buffers *buffers; /* by rank */
} stage;

static stage *the_stage;

static const model_op *
choose_op(stage *st, uint32_t at)
{
    if (st->chosen[at] == 0) {
        bool few = at == 0 && st->s->first_count > 0;
        uint32_t n = few ? st->s->first_count : st->s->choice_count;

        st->chosen[at] = n == 1 ? 1 : model_choose(n) + 1;
    }
    return &st->s->choices[st->chosen[at] - 1];
}

static void
make_call(stage *st, world_rank *r, uint32_t at)
{
    const model_op *o = choose_op(st, at);
    op_buffers *b = &st->buffers[r->rank];
    tc_work *work = NULL;
    tc_status status;
    tc_call call;
    tc_error err;

    op_prepare(o, r, at + 1, b, &call);
    if (st->s->spoil_call != NULL) {
        st->s->spoil_call(r);
    }
    model_watch();
    status = world_issue(r, &call, &work, &err);
    if (status == TC_PENDING) {
        status = world_poll(r, work, &err);
    }
    if (status != TC_OK) {
        model_fail("rank %d, operation %u (%s): %s", r->rank, at + 1, op_text(o),
                   err.message);
    }
    op_check(o, r, at + 1, b);
    world_tidy(r);
}

static void
run_rank(void *arg)
{
    world_rank *r = arg;
    stage *st = the_stage;

    for (uint32_t at = 0; at < st->s->length; at++) {
        make_call(st, r, at);
    }
}

static void
build(void *ctx)
{
    const sequence *s = ctx;
    stage *st = model_memory(sizeof(*st));

    the_stage = st;
    st->s = s;
    st->buffers = model_memory(WORLD_RANKS * sizeof(st->buffers[0]));
    model_sparse(st->buffers, WORLD_RANKS * sizeof(st->buffers[0]));
    st->w = world_create(&s->shape);
    for (int32_t r = 0; r < s->shape.size; r++) {
        char name[16];

        snprintf(name, sizeof(name), "rank %d", r);
        if (s->spoil_rank != NULL) {
            s->spoil_rank(&st->w->ranks[r]);
        }
        world_thread(&st->w->ranks[r], name, run_rank, &st->w->ranks[r]);
    }
}

void
sequence_explore(const char *name, const sequence *s, const model_case *how,
                 const char *fault)
{
    model_case c = *how;

    c.name = name;
    c.build = build;
    c.ctx = (void *)(uintptr_t)s;
    if (fault == NULL) {
        model_expect_none(&c);
    } else {
        model_expect_fault(&c, fault);
    }
}
