/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a test body on several ranks, as threads of this process or as processes. */
#ifndef TC_SUPPORT_RANKS_H
#define TC_SUPPORT_RANKS_H

#include <sys/types.h>

#include "core/comm.h"
#include "loop/engine.h"

/* What a rank's body gets. Every rank has an engine of its own. */
typedef struct tc_test_rank {
    int32_t rank;
    int32_t size;
    tc_engine *engine;
    const tc_store *store;
    void *ctx;
} tc_test_rank;

typedef void (*tc_test_body)(tc_test_rank *self);

/* A store for threads and forked processes: a shared anonymous mapping. */
tc_store *
tc_test_store_create(void);

void
tc_test_store_destroy(tc_store *store);

/* Runs `body` on `size` ranks as threads and joins them. */
void
tc_test_run_threads(int32_t size, tc_test_body body, void *ctx);

/* Runs `body` on `size` ranks as forked processes; each has to exit with 0, unless
 * `statuses` is given: then it gets every rank's wait status and nothing is checked. */
void
tc_test_run_processes(int32_t size, tc_test_body body, void *ctx, int *statuses);

/* The communicator "main" on the backend "ncclx"; the test ends where that fails. */
tc_comm *
tc_test_comm(const tc_test_rank *self, double timeout_s);

/* Issues a call and waits for it; its result. */
tc_status
tc_test_call(tc_comm *comm, const tc_call *call, tc_error *err);

/* Registers the backends, once. */
void
tc_test_register(void);

#endif
