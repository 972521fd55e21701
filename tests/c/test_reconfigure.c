/* SPDX-License-Identifier: BSD-3-Clause */
/* Memberships of a communicator: made, left, replaced, repaired, refused. */
#include "core/reconfigure.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/fake/fake.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "core/registry.h"
#include "support/check.h"
#include "support/messages.h"
#include "support/ranks.h"

enum { MOST = 4 };

static void
expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fprintf(stderr, "'%s' lacks '%s'\n", text, part);
        exit(1);
    }
}

static tc_comm *
make_comm(const tc_test_rank *self, const char *backend)
{
    tc_comm_options options = {
        .backend = backend,
        .name = "flock",
        .timeout_ns = 60 * TC_NSEC_PER_SEC,
        .reconfigurable = true,
    };
    tc_comm *comm = NULL;
    tc_error err;

    expect_ok(self, tc_comm_create(&options, self->engine, &comm, &err), &err);
    return comm;
}

/* The handles of all ranks, through the store. */
static void
exchange(const tc_test_rank *self, tc_comm *comm, const char *round,
         char texts[MOST][256])
{
    const tc_store *store = self->store;
    const char *mine;
    char key[64];
    tc_error err;

    expect_ok(self, tc_comm_init_handle(comm, &mine, &err), &err);
    snprintf(key, sizeof(key), "%s/%d", round, self->rank);
    CHECK(store->set(store->ctx, key, mine, strlen(mine) + 1, &err) == TC_OK);
    for (int32_t r = 0; r < self->size; r++) {
        size_t bytes;

        snprintf(key, sizeof(key), "%s/%d", round, r);
        CHECK(store->get(store->ctx, key, 60 * TC_NSEC_PER_SEC, texts[r], 256, &bytes,
                         &err) == TC_OK);
    }
}

/* The membership of `count` of the ranks, in this order. */
static tc_status
regroup(tc_comm *comm, uint64_t uuid, char texts[MOST][256], const int32_t *ranks,
        int32_t count, double timeout_s, tc_error *err)
{
    const char *handles[MOST];
    tc_reconfigure_options options = {
        .uuid = uuid,
        .handles = handles,
        .count = count,
        .ordered = true,
        .timeout_ns = (uint64_t)(timeout_s * 1e9),
    };

    for (int32_t i = 0; i < count; i++) {
        handles[i] = texts[ranks[i]];
    }
    return tc_comm_reconfigure(comm, &options, err);
}

static void
regroup_ok(const tc_test_rank *self, tc_comm *comm, uint64_t uuid,
           char texts[MOST][256], const int32_t *ranks, int32_t count)
{
    tc_error err;

    expect_ok(self, regroup(comm, uuid, texts, ranks, count, 60, &err), &err);
    CHECK(tc_comm_size(comm) == count);
    CHECK(ranks[tc_comm_rank(comm)] == self->rank);
}

static void
check_sum(const tc_test_rank *self, tc_comm *comm, uint64_t count)
{
    int64_t size = tc_comm_size(comm);
    int64_t *buf = calloc(count, sizeof(*buf));
    tc_call call = {.kind = TC_OP_ALL_REDUCE,
                    .dtype = TC_INT64,
                    .redop = TC_REDOP_SUM,
                    .count = count,
                    .in = buf,
                    .out = buf};
    tc_error err;

    CHECK(buf != NULL);
    for (uint64_t i = 0; i < count; i++) {
        buf[i] = tc_comm_rank(comm) + 1;
    }
    expect_ok(self, tc_test_call(comm, &call, &err), &err);
    for (uint64_t i = 0; i < count; i++) {
        CHECK(buf[i] == size * (size + 1) / 2);
    }
    free(buf);
}

static void
depart(const tc_test_rank *self, tc_comm *comm)
{
    tc_error err;

    expect_ok(self, tc_comm_finalize(comm, NULL, &err), &err);
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_ERR_FINALIZED);
    tc_comm_release(comm);
}

static void
say(const tc_test_rank *self, const char *key)
{
    tc_error err;

    CHECK(self->store->set(self->store->ctx, key, "", 0, &err) == TC_OK);
}

static void
hear(const tc_test_rank *self, const char *key)
{
    size_t bytes;
    char value;
    tc_error err;

    CHECK(self->store->get(self->store->ctx, key, 60 * TC_NSEC_PER_SEC, &value, 1,
                           &bytes, &err) == TC_OK);
}

/* Without ranks ------------------------------------------------------------------- */

static void
unconfigured_body(tc_test_rank *self)
{
    tc_comm *comm = make_comm(self, "ncclx");
    tc_call call = {.kind = TC_OP_BARRIER};
    int32_t mine = 0;
    tc_split_options split = {.ranks = &mine, .rank_count = 1, .name = "child"};
    const char *first, *second;
    tc_comm *child;
    tc_error err;

    CHECK(tc_comm_rank(comm) == -1 && tc_comm_size(comm) == 0);
    CHECK(tc_test_call(comm, &call, &err) == TC_ERR_NOT_INITIALIZED);
    expect(err.message, "not initialized");
    CHECK(tc_comm_split(comm, &split, &child, &err) == TC_ERR_NOT_INITIALIZED);
    CHECK(tc_comm_init_handle(comm, &first, &err) == TC_OK);
    CHECK(tc_comm_init_handle(comm, &second, &err) == TC_OK && first == second);
    CHECK(!tc_comm_is_aborted(comm));
    tc_comm_abort(comm);
    tc_comm_abort(comm);
    CHECK(tc_comm_is_aborted(comm));
    depart(self, comm);

    comm = make_comm(self, "ncclx");
    CHECK(tc_comm_finalize(comm, NULL, &err) == TC_OK);
    CHECK(tc_comm_init_handle(comm, &first, &err) == TC_ERR_FINALIZED);
    expect(err.message, "already finalized");
    tc_comm_release(comm);
    tc_comm_release(make_comm(self, "ncclx"));
}

/* Bad arguments: nothing happens, and the membership of before goes on. */
static void
refusals_body(tc_test_rank *self)
{
    static const int32_t alone[] = {0};
    tc_comm *comm = make_comm(self, "ncclx");
    tc_comm *other = make_comm(self, "ncclx");
    const char *mine, *foreign;
    char texts[MOST][256];
    tc_error err;

    CHECK(tc_comm_init_handle(comm, &mine, &err) == TC_OK);
    CHECK(tc_comm_init_handle(other, &foreign, &err) == TC_OK);
    CHECK(strcmp(mine, foreign) != 0);
    snprintf(texts[0], sizeof(texts[0]), "%s", mine);
    snprintf(texts[1], sizeof(texts[1]), "%s", foreign);
    snprintf(texts[2], sizeof(texts[2]), "gloo:0:0:");
    texts[3][0] = '\0';
    regroup_ok(self, comm, 5, texts, alone, 1);
    for (int32_t bad = 0; bad < 6; bad++) {
        static const int32_t lists[][3] = {{1}, {0, 0}, {0, 2}, {0, 3}, {0}, {0}};
        static const int32_t counts[] = {1, 2, 2, 2, 0, 1};
        static const char *const named[] = {
            "is not among the 1 init_handles", "init_handles[0] and init_handles[1]",
            "init_handles[1] 'gloo:0:0:'",     "init_handles[1] ''",
            "init_handles is empty",           "is at 5 and got 5"};

        CHECK(regroup(comm, bad == 5 ? 5 : 6, texts, lists[bad], counts[bad], 60,
                      &err) == TC_ERR_INVALID_ARGUMENT);
        expect(err.message, named[bad]);
        check_sum(self, comm, 8);
    }
    depart(self, other);
    depart(self, comm);
    CHECK(tc_comm_reconfigure(other = make_comm(self, "fake"),
                              &(tc_reconfigure_options){0},
                              &err) == TC_ERR_INVALID_ARGUMENT);
    depart(self, other);
}

/* A backend without it says so, before anything else is looked at. */
static void
unsupported_body(tc_test_rank *self)
{
    tc_comm_options options = {
        .backend = "plain", .name = "plain", .size = 1, .timeout_ns = TC_NSEC_PER_SEC};
    tc_backend plain = {
        .struct_size = offsetof(tc_backend, endpoint_open),
        .abi = TC_BACKEND_ABI,
        .name = "plain",
        .comm_create = tc_fake_backend()->comm_create,
    };
    const char *handle;
    tc_comm *comm;
    tc_error err;

    CHECK(tc_registry_add("plain", &plain, &err) == TC_OK);
    expect_ok(self, tc_comm_create(&options, self->engine, &comm, &err), &err);
    CHECK(tc_comm_init_handle(comm, &handle, &err) == TC_ERR_UNSUPPORTED);
    expect(err.message, "getInitHandle not implemented");
    CHECK(tc_comm_reconfigure(comm, &(tc_reconfigure_options){0}, &err) ==
          TC_ERR_UNSUPPORTED);
    expect(err.message, "reconfigure not implemented");
    depart(self, comm);
    options.reconfigurable = true;
    CHECK(tc_comm_create(&options, self->engine, &comm, &err) == TC_ERR_UNSUPPORTED);
    expect(err.message, "reconfigure not implemented");
}

/* Memberships ---------------------------------------------------------------------- */

/* Fresh, the same again, without the last and the middle, alone and back to all. */
static void
transitions_body(tc_test_rank *self)
{
    static const struct {
        int32_t count;
        int32_t ranks[MOST];
    } steps[] = {
        {3, {0, 1, 2}}, {3, {0, 1, 2}}, {3, {2, 0, 1}}, {2, {0, 1}}, {3, {0, 1, 2}},
        {2, {0, 2}},    {1, {2}},       {3, {1, 2, 0}}, {2, {2, 1}}, {3, {0, 1, 2}},
    };
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];

    exchange(self, comm, "once", texts);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (int32_t k = 0; k < steps[i].count; k++) {
            if (steps[i].ranks[k] == self->rank) {
                regroup_ok(self, comm, 100 - i, texts, steps[i].ranks, steps[i].count);
                check_sum(self, comm, 3);
                check_sum(self, comm, 100000);
                check_sum(self, comm, 7);
            }
        }
    }
    depart(self, comm);
}

/* A set: every member orders it alike. */
static void
unordered_body(tc_test_rank *self)
{
    tc_comm *comm = make_comm(self, "ncclx");
    const char *handles[MOST];
    char texts[MOST][256];
    tc_reconfigure_options options = {.handles = handles, .count = self->size};
    tc_error err;

    exchange(self, comm, "set", texts);
    for (int32_t i = 0; i < self->size; i++) {
        handles[i] = texts[(self->rank + i) % self->size];
    }
    expect_ok(self, tc_comm_reconfigure(comm, &options, &err), &err);
    check_sum(self, comm, 5);
    depart(self, comm);
}

/* What was in flight fails with a text that says so, and its membership stays until the
 * last of its works is gone. */
static void
in_flight_body(tc_test_rank *self)
{
    static const int32_t both[] = {0, 1};
    static const int32_t rank1[] = {1};
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];
    uint8_t byte = 0;
    tc_error err;

    exchange(self, comm, "flight", texts);
    regroup_ok(self, comm, 0, texts, both, 2);
    barrier(self, comm);
    if (self->rank == 1) {
        tc_work *work = start(self, comm, recv_call(&byte, 1, 0, 0), 60);

        CHECK(work != NULL);
        regroup_ok(self, comm, 1, texts, rank1, 1);
        CHECK(tc_work_get_state(work) == TC_WORK_ERROR);
        check_sum(self, comm, 4);
        CHECK(end(work, &err) == TC_ERR_ABORTED);
        expect(err.message, "rank 1 left it for membership 1");
    } else {
        tc_call call = recv_call(&byte, 1, 1, 0);

        CHECK(tc_test_call(comm, &call, &err) != TC_OK);
        expect(err.message, "left");
    }
    depart(self, comm);
}

/* The excluded and the forgotten leave at once; nobody answers them. */
static void
excluded_body(tc_test_rank *self)
{
    static const int32_t all[] = {0, 1, 2};
    tc_comm *comm = make_comm(self, "ncclx");
    tc_work *work = NULL;
    char texts[MOST][256];
    uint8_t byte = 0;
    tc_error err;

    exchange(self, comm, "out", texts);
    regroup_ok(self, comm, 0, texts, all, 3);
    barrier(self, comm);
    if (self->rank == 2) {
        work = start(self, comm, recv_call(&byte, 1, 0, 0), 600);
        depart(self, comm);
        CHECK(end(work, &err) != TC_OK);
        return;
    }
    regroup_ok(self, comm, 1, texts, all, 2);
    check_sum(self, comm, 9);
    depart(self, comm);
}

/* Abort unblocks the peers, and a reconfigure brings the communicator back. */
static void
abort_body(tc_test_rank *self)
{
    static const int32_t both[] = {0, 1};
    tc_comm *comm = make_comm(self, "ncclx");
    tc_call call = {.kind = TC_OP_BARRIER};
    char texts[MOST][256];
    tc_error err;

    exchange(self, comm, "abort", texts);
    for (uint64_t uuid = 0; uuid < 5; uuid++) {
        regroup_ok(self, comm, uuid, texts, both, 2);
        CHECK(!tc_comm_is_aborted(comm));
        barrier(self, comm);
        if (self->rank == 0) {
            tc_comm_abort(comm);
            tc_comm_abort(comm);
        } else {
            CHECK(tc_test_call(comm, &call, &err) == TC_ERR_ABORTED);
            expect(err.message, "rank 0 aborted it");
        }
        CHECK(tc_comm_is_aborted(comm));
    }
    depart(self, comm);
}

/* Called off by another thread ----------------------------------------------------- */

typedef struct hindrance {
    tc_comm *comm;
    bool finalize;
    uint32_t *waiting; /* set once the reconfigure looks around */
} hindrance;

static bool
note_waiting(void *ctx)
{
    tc_store_release_u32(ctx, 1);
    return false;
}

static void *
call_off(void *arg)
{
    const hindrance *h = arg;
    tc_error err;

    while (tc_load_acquire_u32(h->waiting) == 0) {
        sched_yield();
    }
    if (h->finalize) {
        CHECK(tc_comm_finalize(h->comm, NULL, &err) == TC_OK);
    } else {
        tc_comm_abort(h->comm);
    }
    return NULL;
}

static void
called_off_body(tc_test_rank *self)
{
    tc_comm *absent = make_comm(self, "ncclx");

    for (int finalize = 0; finalize < 2; finalize++) {
        tc_comm *comm = make_comm(self, "ncclx");
        uint32_t waiting = 0;
        const char *handles[2];
        hindrance h = {comm, finalize == 1, &waiting};
        tc_reconfigure_options options = {
            .handles = handles, .count = 2, .ordered = true};
        pthread_t thread;
        tc_error err;

        options.interrupt = (tc_interrupt){note_waiting, &waiting};
        CHECK(tc_comm_init_handle(comm, &handles[0], &err) == TC_OK);
        CHECK(tc_comm_init_handle(absent, &handles[1], &err) == TC_OK);
        CHECK(pthread_create(&thread, NULL, call_off, &h) == 0);
        CHECK(tc_comm_reconfigure(comm, &options, &err) ==
              (finalize ? TC_ERR_FINALIZED : TC_ERR_ABORTED));
        expect(err.message, "during the reconfigure");
        pthread_join(thread, NULL);
        CHECK(tc_comm_size(comm) == 0);
        if (finalize) {
            CHECK(tc_comm_finalize(comm, NULL, &err) == TC_ERR_FINALIZED);
            tc_comm_release(comm);
        } else {
            options.count = 1;
            options.uuid = 1;
            CHECK(tc_comm_reconfigure(comm, &options, &err) == TC_OK);
            depart(self, comm);
        }
    }
    depart(self, absent);
}

/* Refused by others ---------------------------------------------------------------- */

/* Rank 1 comes for a membership that rank 0 has given up: rank 0 tells it both uuids
 * and goes on to wait for the one that is due. */
static void
late_body(tc_test_rank *self)
{
    static const int32_t both[] = {0, 1};
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];
    tc_error err;

    exchange(self, comm, "late", texts);
    if (self->rank == 0) {
        CHECK(regroup(comm, 3, texts, both, 2, 0.1, &err) == TC_ERR_TIMEOUT);
        say(self, "gave up");
    } else {
        hear(self, "gave up");
        CHECK(regroup(comm, 3, texts, both, 2, 60, &err) == TC_ERR_MISMATCH);
        expect(err.message, "comes for membership 3");
        expect(err.message, "this is membership 4");
        CHECK(tc_comm_size(comm) == 0);
    }
    regroup_ok(self, comm, 4, texts, both, 2);
    check_sum(self, comm, 2);
    depart(self, comm);
}

/* Rank 2 comes for the next membership but one: it is kept until that is due. One that
 * has given up meanwhile is not. */
static void
early_body(tc_test_rank *self)
{
    static const int32_t all[] = {0, 1, 2};
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];
    tc_error err;

    exchange(self, comm, "early", texts);
    if (self->rank == 2) {
        CHECK(regroup(comm, 2, texts, all, 3, 0.1, &err) == TC_ERR_TIMEOUT);
        say(self, "came");
    } else {
        if (self->rank == 1) {
            hear(self, "came");
        }
        regroup_ok(self, comm, 1, texts, all, 2);
        check_sum(self, comm, 3);
    }
    regroup_ok(self, comm, 2, texts, all, 3);
    check_sum(self, comm, 3);
    depart(self, comm);
}

/* One uuid, two orders: every member hears of it; then they agree. */
static void
orders_body(tc_test_rank *self)
{
    static const int32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}};
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];
    tc_error err;
    bool other = self->rank == 1;

    exchange(self, comm, "order", texts);
    CHECK(regroup(comm, 0, texts, orders[other], 3, 60, &err) == TC_ERR_MISMATCH);
    /* The second is for who comes when rank 0 has gone on. */
    CHECK(strstr(err.message, "has other init handles, or another order") != NULL ||
          (self->rank != 0 && strstr(err.message, "but this is membership 1") != NULL));
    CHECK(tc_comm_size(comm) == 0);
    regroup_ok(self, comm, 1, texts, orders[0], 3);
    check_sum(self, comm, 2);
    depart(self, comm);
}

/* The verdict on a membership with somebody who has ended, or whose sockets are just
 * being closed, also for who comes when rank 0 has gone on to the next. */
static void
expect_gone(tc_status status, const tc_error *err)
{
    if (status == TC_ERR_MISMATCH) {
        expect(err->message, "but this is membership");
    } else if (status == TC_ERR_PEER_DIED) {
        expect(err->message, "rank 0 ended during the start-up");
    } else {
        CHECK(status == TC_ERR_PEER_CLOSED);
        expect(err->message, "listens");
    }
}

/* A member that never comes is named at the deadline; one that has left, at once. */
static void
absent_body(tc_test_rank *self)
{
    static const int32_t all[] = {0, 1, 2};
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];
    tc_error err;
    tc_status status;

    exchange(self, comm, "absent", texts);
    if (self->rank != 2) {
        status = regroup(comm, 0, texts, all, 3, 0.5, &err);
        CHECK(status == TC_ERR_TIMEOUT);
        expect(err.message, "rank 2 did not join");
        regroup_ok(self, comm, 1, texts, all, 2);
        barrier(self, comm);
    }
    if (self->rank == 2) {
        hear(self, "gone on");
        depart(self, comm);
        say(self, "left");
        return;
    }
    say(self, "gone on");
    hear(self, "left");
    expect_gone(regroup(comm, 2, texts, all, 3, 60, &err), &err);
    regroup_ok(self, comm, 3, texts, all, 2);
    check_sum(self, comm, 2);
    depart(self, comm);
}

/* A member is killed inside a membership; the others go on without it. */
static void
killed_body(tc_test_rank *self)
{
    static const int32_t all[] = {0, 1, 2};
    int32_t victim = *(int32_t *)self->ctx;
    tc_comm *comm = make_comm(self, "ncclx");
    tc_call call = {.kind = TC_OP_BARRIER};
    char texts[MOST][256];
    int32_t left[2];
    tc_error err;

    exchange(self, comm, "kill", texts);
    regroup_ok(self, comm, 0, texts, all, 3);
    barrier(self, comm);
    if (self->rank == victim) {
        raise(SIGKILL);
    }
    CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_DIED);
    CHECK(tc_comm_is_aborted(comm));
    for (int32_t r = 0, n = 0; r < 3; r++) {
        if (r != victim) {
            left[n++] = r;
        }
    }
    /* With the dead one it cannot be done, and that is known before the deadline. */
    expect_gone(regroup(comm, 1, texts, all, 3, 600, &err), &err);
    regroup_ok(self, comm, 2, texts, left, 2);
    check_sum(self, comm, 1000);
    depart(self, comm);
}

static void
test_kills(void)
{
    for (int32_t victim = 0; victim < 3; victim++) {
        int statuses[3];

        tc_test_run_processes(3, killed_body, &victim, statuses);
        for (int32_t r = 0; r < 3; r++) {
            CHECK(r == victim
                      ? WIFSIGNALED(statuses[r])
                      : WIFEXITED(statuses[r]) && WEXITSTATUS(statuses[r]) == 0);
        }
    }
}

/* Nothing grows -------------------------------------------------------------------- */

static int
count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static long
mapped_lines(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    long lines = 0;
    char line[512];

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        lines += strstr(line, "memfd:torchcomms") != NULL;
    }
    fclose(file);
    return lines;
}

static void
repeated_body(tc_test_rank *self)
{
    static const int32_t both[] = {0, 1};
    long mapped = mapped_lines();
    tc_comm *comm = make_comm(self, "ncclx");
    char texts[MOST][256];
    int descriptors = 0;

    exchange(self, comm, "many", texts);
    for (uint64_t uuid = 0; uuid < 200; uuid++) {
        regroup_ok(self, comm, uuid, texts, both, 2);
        check_sum(self, comm, uuid % 20 == 0 ? 50000 : 5);
        if (uuid == 10) {
            descriptors = count_descriptors();
        }
    }
    CHECK(count_descriptors() == descriptors);
    depart(self, comm);
    /* The engine frees memberships in its own time; what it forgot would stay. */
    while (mapped_lines() != mapped) {
        sched_yield();
    }
}

/* A communicator with ranks of its own has a handle too. */
static void
ordinary_body(tc_test_rank *self)
{
    static const int32_t turned[] = {1, 0};
    tc_comm *comm = tc_test_comm(self, 60);
    char texts[MOST][256];

    check_sum(self, comm, 6);
    exchange(self, comm, "plain", texts);
    regroup_ok(self, comm, 0, texts, turned, 2);
    check_sum(self, comm, 6);
    depart(self, comm);
}

int
main(void)
{
    tc_test_run_threads(1, unconfigured_body, NULL);
    tc_test_run_threads(1, refusals_body, NULL);
    tc_test_run_threads(1, unsupported_body, NULL);
    tc_test_run_threads(3, transitions_body, NULL);
    tc_test_run_processes(3, transitions_body, NULL, NULL);
    tc_test_run_threads(4, unordered_body, NULL);
    tc_test_run_threads(2, in_flight_body, NULL);
    tc_test_run_threads(3, excluded_body, NULL);
    tc_test_run_threads(2, abort_body, NULL);
    tc_test_run_threads(1, called_off_body, NULL);
    tc_test_run_threads(2, late_body, NULL);
    tc_test_run_threads(3, early_body, NULL);
    tc_test_run_threads(3, orders_body, NULL);
    tc_test_run_threads(3, absent_body, NULL);
    test_kills();
    tc_test_run_processes(2, repeated_body, NULL, NULL);
    tc_test_run_threads(2, ordinary_body, NULL);
    return 0;
}
