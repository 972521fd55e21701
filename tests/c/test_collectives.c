/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective of the native engine, both paths, against values that are known. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "support/check.h"
#include "support/ranks.h"

/* Element i that rank r contributes, for rank `to` where it matters. */
static int64_t
value(int32_t r, int32_t to, uint64_t i)
{
    return (int64_t)(r + 1) * 1000 + (int64_t)to * 100 + (int64_t)(i % 97);
}

static int64_t
value_sum(int32_t size, int32_t to, uint64_t i)
{
    int64_t sum = 0;

    for (int32_t r = 0; r < size; r++) {
        sum += value(r, to, i);
    }
    return sum;
}

static int64_t *
make(uint64_t count)
{
    int64_t *buf = malloc(count * sizeof(*buf) + 1);

    CHECK(buf != NULL);
    for (uint64_t i = 0; i < count; i++) {
        buf[i] = -1;
    }
    return buf;
}

static int64_t *
make_blocks(int32_t r, int32_t size, uint64_t count)
{
    int64_t *buf = make(count * (uint64_t)size);

    for (int32_t to = 0; to < size; to++) {
        for (uint64_t i = 0; i < count; i++) {
            buf[(uint64_t)to * count + i] = value(r, to, i);
        }
    }
    return buf;
}

static void
run_call(tc_comm *comm, tc_call *call)
{
    tc_error err;
    tc_work *work;
    tc_status status;

    status = tc_comm_issue(comm, call, 0, &work, &err);
    if (status == TC_PENDING) {
        status = tc_work_wait(work, TC_DEADLINE_NONE, NULL, &err);
        tc_work_release(work);
    }
    if (status != TC_OK) {
        fprintf(stderr, "%s: %s\n", tc_op_name(call->kind), err.message);
        exit(1);
    }
}

typedef struct setting {
    tc_comm *comm;
    int32_t rank;
    int32_t size;
    uint64_t count;
    bool async;
} setting;

static void
check_all_reduce(const setting *s)
{
    int64_t *buf = make_blocks(s->rank, 1, s->count);
    int64_t *out = make(s->count);
    tc_call call = {.kind = TC_OP_ALL_REDUCE,
                    .dtype = TC_INT64,
                    .redop = TC_REDOP_SUM,
                    .async = s->async,
                    .count = s->count,
                    .in = buf,
                    .out = out};

    run_call(s->comm, &call);
    call.out = buf;
    run_call(s->comm, &call);
    for (uint64_t i = 0; i < s->count; i++) {
        CHECK(out[i] == value_sum(s->size, 0, i) && buf[i] == out[i]);
    }
    free(buf);
    free(out);
}

static void
check_rooted(const setting *s, int32_t root)
{
    int64_t *buf = make_blocks(s->rank, 1, s->count);
    int64_t *blocks = make_blocks(s->rank, s->size, s->count);
    int64_t *all = make(s->count * (uint64_t)s->size);
    tc_call call = {.dtype = TC_INT64,
                    .redop = TC_REDOP_SUM,
                    .async = s->async,
                    .root = root,
                    .count = s->count,
                    .in = buf,
                    .out = buf};

    call.kind = TC_OP_REDUCE;
    run_call(s->comm, &call);
    for (uint64_t i = 0; s->rank == root && i < s->count; i++) {
        CHECK(buf[i] == value_sum(s->size, 0, i));
    }
    call.kind = TC_OP_BROADCAST;
    run_call(s->comm, &call);
    for (uint64_t i = 0; i < s->count; i++) {
        CHECK(buf[i] == value_sum(s->size, 0, i));
    }
    call.kind = TC_OP_SCATTER;
    call.in_blocks = (tc_blocks){.base = blocks, .count = s->count};
    call.in = NULL;
    run_call(s->comm, &call);
    for (uint64_t i = 0; i < s->count; i++) {
        CHECK(buf[i] == value(root, s->rank, i));
    }
    call.kind = TC_OP_GATHER_SINGLE;
    call.in = buf;
    call.out = NULL;
    call.out_blocks = (tc_blocks){.base = all, .count = s->count};
    run_call(s->comm, &call);
    for (uint64_t i = 0; s->rank == root && i < s->count * (uint64_t)s->size; i++) {
        CHECK(all[i] == value(root, (int32_t)(i / s->count), i % s->count));
    }
    free(buf);
    free(blocks);
    free(all);
}

static void
check_gathers(const setting *s)
{
    int64_t *buf = make_blocks(s->rank, 1, s->count);
    int64_t *all = make(s->count * (uint64_t)s->size);
    tc_op_kind kinds[] = {TC_OP_ALL_GATHER_SINGLE, TC_OP_ALL_GATHER,
                          TC_OP_ALL_GATHER_V};

    for (size_t k = 0; k < 3; k++) {
        tc_call call = {.kind = kinds[k],
                        .dtype = TC_INT64,
                        .async = s->async,
                        .count = s->count,
                        .in = buf,
                        .out_blocks = {.base = all, .count = s->count}};

        memset(all, 0, s->count * (uint64_t)s->size * sizeof(*all));
        run_call(s->comm, &call);
        for (uint64_t i = 0; i < s->count * (uint64_t)s->size; i++) {
            CHECK(all[i] == value((int32_t)(i / s->count), 0, i % s->count));
        }
    }
    free(buf);
    free(all);
}

static void
check_blocks(const setting *s)
{
    int64_t *in = make_blocks(s->rank, s->size, s->count);
    int64_t *out = make(s->count * (uint64_t)s->size);
    tc_op_kind scatters[] = {TC_OP_REDUCE_SCATTER_SINGLE, TC_OP_REDUCE_SCATTER,
                             TC_OP_REDUCE_SCATTER_V};
    tc_op_kind alls[] = {TC_OP_ALL_TO_ALL_SINGLE, TC_OP_ALL_TO_ALL,
                         TC_OP_ALL_TO_ALL_V_SINGLE};

    for (size_t k = 0; k < 3; k++) {
        tc_call call = {.kind = scatters[k],
                        .dtype = TC_INT64,
                        .redop = TC_REDOP_SUM,
                        .async = s->async,
                        .count = s->count,
                        .out = out,
                        .in_blocks = {.base = in, .count = s->count}};

        run_call(s->comm, &call);
        for (uint64_t i = 0; i < s->count; i++) {
            CHECK(out[i] == value_sum(s->size, s->rank, i));
        }
        call.kind = alls[k];
        call.out = NULL;
        call.out_blocks = (tc_blocks){.base = out, .count = s->count};
        run_call(s->comm, &call);
        for (uint64_t i = 0; i < s->count * (uint64_t)s->size; i++) {
            CHECK(out[i] == value((int32_t)(i / s->count), s->rank, i % s->count));
        }
    }
    free(in);
    free(out);
}

/* Lists of tensors, as the Python face passes them. */
static void
check_lists(const setting *s)
{
    int32_t n = s->size;
    int64_t *in = make_blocks(s->rank, n, s->count);
    int64_t *out = make(s->count * (uint64_t)n);
    void **in_ptrs = calloc((size_t)n, sizeof(void *));
    void **out_ptrs = calloc((size_t)n, sizeof(void *));
    uint64_t *counts = calloc((size_t)n, sizeof(uint64_t));
    tc_call call = {.kind = TC_OP_REDUCE_SCATTER,
                    .dtype = TC_INT64,
                    .redop = TC_REDOP_SUM,
                    .async = s->async,
                    .count = s->count,
                    .out = out};

    CHECK(in_ptrs != NULL && out_ptrs != NULL && counts != NULL);
    for (int32_t r = 0; r < n; r++) {
        in_ptrs[r] = in + s->count * (uint64_t)r;
        out_ptrs[r] = out + s->count * (uint64_t)(n - 1 - r);
        counts[r] = s->count;
    }
    call.in_blocks = (tc_blocks){.ptrs = in_ptrs, .counts = counts};
    run_call(s->comm, &call);
    for (uint64_t i = 0; i < s->count; i++) {
        CHECK(out[i] == value_sum(n, s->rank, i));
    }
    call.kind = TC_OP_ALL_GATHER;
    call.out = NULL;
    call.in = in;
    call.out_blocks = (tc_blocks){.ptrs = out_ptrs, .counts = counts};
    run_call(s->comm, &call);
    for (int32_t r = 0; r < n; r++) {
        for (uint64_t i = 0; i < s->count; i++) {
            CHECK(((int64_t *)out_ptrs[r])[i] == value(r, 0, i));
        }
    }
    call.kind = TC_OP_ALL_TO_ALL_SINGLE;
    call.in = NULL;
    call.in_blocks = (tc_blocks){.ptrs = in_ptrs, .counts = counts};
    run_call(s->comm, &call);
    for (int32_t r = 0; r < n; r++) {
        for (uint64_t i = 0; i < s->count; i++) {
            CHECK(((int64_t *)out_ptrs[r])[i] == value(r, s->rank, i));
        }
    }
    free(in);
    free(out);
    free(in_ptrs);
    free(out_ptrs);
    free(counts);
}

/* Blocks of different lengths, some empty, at scattered addresses. */
static void
check_uneven(const setting *s)
{
    int32_t n = s->size;
    void **in = calloc((size_t)n, sizeof(void *));
    void **out = calloc((size_t)n, sizeof(void *));
    uint64_t *in_counts = calloc((size_t)n, sizeof(uint64_t));
    uint64_t *out_counts = calloc((size_t)n, sizeof(uint64_t));
    tc_call call = {.kind = TC_OP_ALL_TO_ALL, .dtype = TC_INT64, .async = s->async};

    CHECK(in != NULL && out != NULL && in_counts != NULL && out_counts != NULL);
    for (int32_t r = 0; r < n; r++) {
        in_counts[r] = s->count * (uint64_t)((s->rank + r) % 3);
        out_counts[r] = s->count * (uint64_t)((r + s->rank) % 3);
        in[r] = make(in_counts[r]);
        out[r] = make(out_counts[r]);
        for (uint64_t i = 0; i < in_counts[r]; i++) {
            ((int64_t *)in[r])[i] = value(s->rank, r, i);
        }
    }
    call.in_blocks = (tc_blocks){.ptrs = in, .counts = in_counts};
    call.out_blocks = (tc_blocks){.ptrs = out, .counts = out_counts};
    run_call(s->comm, &call);
    for (int32_t r = 0; r < n; r++) {
        for (uint64_t i = 0; i < out_counts[r]; i++) {
            CHECK(((int64_t *)out[r])[i] == value(r, s->rank, i));
        }
        free(in[r]);
        free(out[r]);
    }
    free(in);
    free(out);
    free(in_counts);
    free(out_counts);
}

static void
check_all(const setting *s)
{
    tc_call barrier = {.kind = TC_OP_BARRIER, .async = s->async};

    check_all_reduce(s);
    for (int32_t root = 0; root < s->size; root++) {
        check_rooted(s, root);
    }
    check_gathers(s);
    check_blocks(s);
    check_lists(s);
    check_uneven(s);
    run_call(s->comm, &barrier);
}

static void
collectives_body(tc_test_rank *self)
{
    static const uint64_t counts[] = {0, 1, 6, 7, 300, 5000, 20011, 70001};
    tc_comm *comm = tc_test_comm(self, 60);
    tc_error err;

    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        setting s = {comm, self->rank, self->size, counts[k], false};

        check_all(&s);
        s.async = true;
        check_all(&s);
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_ERR_FINALIZED);
    tc_comm_release(comm);
}

enum { PIPELINE = 50 };

/* Many operations in flight, small and large in turn; waited for out of order. */
static void
pipeline_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    tc_work *works[PIPELINE];
    int64_t *bufs[PIPELINE];
    tc_error err;

    for (int k = 0; k < PIPELINE; k++) {
        uint64_t count = k % 3 == 0 ? 30000 : 4;
        tc_call call = {.kind = TC_OP_ALL_REDUCE,
                        .dtype = TC_INT64,
                        .redop = TC_REDOP_SUM,
                        .async = true,
                        .count = count};
        tc_status status;

        bufs[k] = make_blocks(self->rank, 1, count);
        call.in = call.out = bufs[k];
        status = tc_comm_issue(comm, &call, 0, &works[k], &err);
        CHECK(status == TC_OK || status == TC_PENDING);
    }
    for (int k = PIPELINE - 1; k >= 0; k--) {
        if (works[k] != NULL) {
            CHECK(tc_work_wait(works[k], TC_DEADLINE_NONE, NULL, &err) == TC_OK);
            CHECK(tc_work_get_state(works[k]) == TC_WORK_COMPLETED);
            tc_work_release(works[k]);
        }
        CHECK(bufs[k][3] == value_sum(self->size, 0, 3));
        free(bufs[k]);
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* Two communicators, async operations in another order on each rank. */
static void
crossed_body(tc_test_rank *self)
{
    tc_comm *comms[2] = {tc_test_comm(self, 60), tc_test_comm(self, 60)};
    tc_error err;

    for (int k = 0; k < 20; k++) {
        int64_t *bufs[2];
        tc_work *works[2];

        for (int i = 0; i < 2; i++) {
            int at = self->rank % 2 == 0 ? i : 1 - i;
            tc_call call = {.kind = TC_OP_ALL_REDUCE,
                            .dtype = TC_INT64,
                            .redop = TC_REDOP_SUM,
                            .async = true,
                            .count = 40000};

            bufs[at] = make_blocks(self->rank, 1, call.count);
            call.in = call.out = bufs[at];
            CHECK(tc_comm_issue(comms[at], &call, 0, &works[at], &err) >= TC_OK);
        }
        for (int i = 0; i < 2; i++) {
            int at = self->rank % 2 == 0 ? i : 1 - i;

            if (works[at] != NULL) {
                CHECK(tc_work_wait(works[at], TC_DEADLINE_NONE, NULL, &err) == TC_OK);
                tc_work_release(works[at]);
            }
            CHECK(bufs[at][39999] == value_sum(self->size, 0, 39999));
            free(bufs[at]);
        }
    }
    for (int i = 0; i < 2; i++) {
        CHECK(tc_comm_finalize(comms[i], NULL, &err) == TC_OK);
        tc_comm_release(comms[i]);
    }
}

/* Odd and even ranks split, in reverse order; the last rank joins none. */
static void
split_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    int32_t ranks[64];
    int32_t n = 0;
    tc_split_options options = {.ranks = ranks, .name = "child"};
    tc_comm *child;
    tc_error err;

    for (int32_t r = self->size - 2; self->rank < self->size - 1 && r >= 0; r--) {
        if (r % 2 == self->rank % 2) {
            ranks[n++] = r;
        }
    }
    options.rank_count = n;
    for (int k = 0; k < 3; k++) {
        setting s = {.size = n, .count = 1000};

        CHECK(tc_comm_split(comm, &options, &child, &err) == TC_OK);
        CHECK((child != NULL) == (n > 0));
        if (child != NULL) {
            s.comm = child;
            s.rank = tc_comm_rank(child);
            CHECK(tc_comm_size(child) == n && ranks[s.rank] == self->rank);
            check_all(&s);
            CHECK(tc_comm_finalize(child, NULL, &err) == TC_OK);
            tc_comm_release(child);
        }
    }
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    tc_comm_release(comm);
}

/* More ranks than lanes have large slots for; every path once. */
static void
many_body(tc_test_rank *self)
{
    setting s = {tc_test_comm(self, 120), self->rank, self->size, 40, false};
    tc_error err;

    check_all_reduce(&s);
    s.count = 3000;
    check_all_reduce(&s);
    s.count = 200;
    check_lists(&s);
    CHECK(tc_comm_finalize(s.comm, NULL, &err) == TC_OK);
    tc_comm_release(s.comm);
}

int
main(void)
{
    for (int32_t size = 1; size <= 5; size++) {
        tc_test_run_threads(size, collectives_body, NULL);
        tc_test_run_threads(size, pipeline_body, NULL);
    }
    tc_test_run_processes(3, collectives_body, NULL, NULL);
    tc_test_run_threads(66, many_body, NULL);
    tc_test_run_threads(2, crossed_body, NULL);
    tc_test_run_threads(4, crossed_body, NULL);
    tc_test_run_threads(2, split_body, NULL);
    tc_test_run_threads(6, split_body, NULL);
    return 0;
}
