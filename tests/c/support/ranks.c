/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as threads or processes, and the store they meet in. */
#include "support/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/fake/fake.h"
#include "backend/native/native.h"
#include "base/clock.h"
#include "base/error.h"
#include "core/registry.h"
#include "support/check.h"

enum { STORE_KEYS = 4096, KEY_BYTES = 128, VALUE_BYTES = 256 };

typedef struct store_row {
    char key[KEY_BYTES];
    size_t bytes; /* SIZE_MAX: a counter */
    int64_t sum;
    char value[VALUE_BYTES];
} store_row;

typedef struct shared_store {
    pthread_mutex_t lock;
    int count;
    store_row rows[STORE_KEYS];
} shared_store;

static store_row *
find_locked(shared_store *store, const char *key, bool make)
{
    store_row *row;

    for (int i = 0; i < store->count; i++) {
        if (strcmp(store->rows[i].key, key) == 0) {
            return &store->rows[i];
        }
    }
    if (!make) {
        return NULL;
    }
    CHECK(store->count < STORE_KEYS && strlen(key) < KEY_BYTES);
    row = &store->rows[store->count++];
    strcpy(row->key, key);
    return row;
}

static tc_status
store_set(void *ctx, const char *key, const void *value, size_t bytes, tc_error *err)
{
    shared_store *store = ctx;
    store_row *row;

    (void)err;
    CHECK(bytes <= VALUE_BYTES);
    pthread_mutex_lock(&store->lock);
    row = find_locked(store, key, true);
    memcpy(row->value, value, bytes);
    row->bytes = bytes;
    pthread_mutex_unlock(&store->lock);
    return TC_OK;
}

static tc_status
store_get(void *ctx, const char *key, uint64_t timeout_ns, void *value, size_t capacity,
          size_t *bytes_p, tc_error *err)
{
    shared_store *store = ctx;
    uint64_t deadline = tc_deadline_after(tc_clock_ns(), timeout_ns);

    for (;;) {
        struct timespec pause = {.tv_nsec = 200000};
        store_row *row;

        pthread_mutex_lock(&store->lock);
        row = find_locked(store, key, false);
        if (row != NULL) {
            *bytes_p = row->bytes;
            memcpy(value, row->value, row->bytes < capacity ? row->bytes : capacity);
        }
        pthread_mutex_unlock(&store->lock);
        if (row != NULL) {
            return TC_OK;
        }
        if (tc_clock_ns() > deadline) {
            return tc_error_set(err, TC_ERR_STORE, "key '%s' did not appear", key);
        }
        nanosleep(&pause, NULL);
    }
}

static tc_status
store_add(void *ctx, const char *key, int64_t amount, int64_t *sum_p, tc_error *err)
{
    shared_store *store = ctx;
    store_row *row;

    (void)err;
    pthread_mutex_lock(&store->lock);
    row = find_locked(store, key, true);
    row->bytes = SIZE_MAX;
    row->sum += amount;
    *sum_p = row->sum;
    pthread_mutex_unlock(&store->lock);
    return TC_OK;
}

tc_store *
tc_test_store_create(void)
{
    pthread_mutexattr_t attr;
    tc_store *store = calloc(1, sizeof(*store));
    shared_store *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(store != NULL && shared != MAP_FAILED);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    *store = (tc_store){shared, store_set, store_get, store_add};
    return store;
}

void
tc_test_store_destroy(tc_store *store)
{
    munmap(store->ctx, sizeof(shared_store));
    free(store);
}

void
tc_test_register(void)
{
    tc_error err;

    if (!tc_registry_has("ncclx")) {
        CHECK(tc_registry_add("ncclx", tc_native_backend(), &err) == TC_OK);
        CHECK(tc_registry_add("fake", tc_fake_backend(), &err) == TC_OK);
    }
}

typedef struct launch {
    tc_test_rank self;
    tc_test_body body;
    pthread_t thread;
} launch;

static void *
run_rank(void *arg)
{
    launch *one = arg;
    tc_error err;

    if (tc_engine_create(&one->self.engine, &err) != TC_OK) {
        fprintf(stderr, "rank %d: %s\n", one->self.rank, err.message);
        exit(1);
    }
    one->body(&one->self);
    tc_engine_destroy(one->self.engine);
    return NULL;
}

void
tc_test_run_threads(int32_t size, tc_test_body body, void *ctx)
{
    launch *all = calloc((size_t)size, sizeof(*all));
    tc_store *store = tc_test_store_create();

    CHECK(all != NULL);
    tc_test_register();
    for (int32_t r = 0; r < size; r++) {
        all[r].self = (tc_test_rank){r, size, NULL, store, ctx};
        all[r].body = body;
        CHECK(pthread_create(&all[r].thread, NULL, run_rank, &all[r]) == 0);
    }
    for (int32_t r = 0; r < size; r++) {
        pthread_join(all[r].thread, NULL);
    }
    tc_test_store_destroy(store);
    free(all);
}

void
tc_test_run_processes(int32_t size, tc_test_body body, void *ctx, int *statuses)
{
    pid_t *pids = calloc((size_t)size, sizeof(*pids));
    tc_store *store = tc_test_store_create();

    CHECK(pids != NULL);
    tc_test_register();
    fflush(NULL);
    for (int32_t r = 0; r < size; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0);
        if (pids[r] == 0) {
            launch one = {.self = {r, size, NULL, store, ctx}, .body = body};

            /* A rank that waits for one that has failed would wait for ever. */
            CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
            run_rank(&one);
            fflush(NULL);
            _exit(0);
        }
    }
    for (int32_t r = 0; r < size; r++) {
        int status = 0;

        CHECK(waitpid(pids[r], &status, 0) == pids[r]);
        if (statuses != NULL) {
            statuses[r] = status;
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "rank %d of %d ended with wait status %d\n", r, size,
                    status);
            exit(1);
        }
    }
    tc_test_store_destroy(store);
    free(pids);
}

tc_comm *
tc_test_comm(const tc_test_rank *self, double timeout_s)
{
    tc_comm_options options = {
        .backend = "ncclx",
        .name = "main",
        .rank = self->rank,
        .size = self->size,
        .timeout_ns = (uint64_t)(timeout_s * 1e9),
        .store = self->store,
    };
    tc_comm *comm = NULL;
    tc_error err;

    if (tc_comm_create(&options, self->engine, &comm, &err) != TC_OK) {
        fprintf(stderr, "rank %d: tc_comm_create: %s\n", self->rank, err.message);
        exit(1);
    }
    return comm;
}

tc_status
tc_test_call(tc_comm *comm, const tc_call *call, tc_error *err)
{
    tc_work *work;
    tc_status status = tc_comm_issue(comm, call, 0, &work, err);

    if (status == TC_PENDING) {
        status = tc_work_wait(work, TC_DEADLINE_NONE, NULL, err);
        tc_work_release(work);
    }
    return status;
}
