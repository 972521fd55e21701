/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans and runs when an allocation fails: an error, and the output untouched. */
#include <stdlib.h>
#include <string.h>

#include "coll/run.h"
#include "support/check.h"

#define NEVER (-1)

/* Allocations until one fails. */
static int countdown = NEVER;

/* The sanitizers have allocators of their own that must not be replaced; the release
 * build covers these branches, here only the branches without a failure run. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FAILURES 1

static bool
fails_now(void)
{
    if (countdown == NEVER) {
        return false;
    }
    return countdown-- == 0;
}

void *
__libc_malloc(size_t bytes);
void *
__libc_realloc(void *old, size_t bytes);

void *
malloc(size_t bytes)
{
    return fails_now() ? NULL : __libc_malloc(bytes);
}

void *
realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __libc_realloc(old, bytes);
}
#else
#define FAILURES 0
#endif

static tc_status
make_plan(tc_op_kind kind, int32_t size, int fail_at, tc_plan *plan, tc_error *err)
{
    tc_blocks blocks = {.count = 5};
    tc_plan_shape shape = {.kind = kind,
                           .size = size,
                           .elem_bytes = 4,
                           .count = 5,
                           .in_blocks = &blocks,
                           .out_blocks = &blocks};
    tc_status status;

    countdown = fail_at;
    status = tc_plan_create(&shape, plan, err);
    countdown = NEVER;
    return status;
}

/* Fails each allocation in turn until a plan is made without reaching the failure. */
static void
test_plan(tc_op_kind kind)
{
    for (int fail_at = FAILURES ? 0 : 100;; fail_at++) {
        tc_plan plan = {0};
        tc_error err = {0};
        tc_status status = make_plan(kind, 9, fail_at, &plan, &err);

        if (status == TC_OK) {
            CHECK(!FAILURES || fail_at > 0);
            /* As large a plan again needs no memory. */
            CHECK(make_plan(kind, 9, FAILURES ? 0 : 100, &plan, &err) == TC_OK);
            tc_plan_destroy(&plan);
            return;
        }
        CHECK(status == TC_ERR_NO_MEMORY && err.status == TC_ERR_NO_MEMORY);
        CHECK(strstr(err.message, "for 9 ranks") != NULL);
        CHECK(plan.step_count == 0);
        tc_plan_destroy(&plan);
    }
}

static void
test_run(void)
{
    tc_lanes lanes = {0};
    tc_call call = {.dtype = TC_INT32};
    tc_plan plan = {0};
    tc_run *run = NULL;
    tc_run_config config;
    tc_error err = {0};

    CHECK(make_plan(TC_OP_BARRIER, 3, NEVER, &plan, NULL) == TC_OK);
    config = (tc_run_config){
        .plan = &plan, .call = &call, .lanes = &lanes, .size = 3, .piece_bytes = 16};
    if (FAILURES) {
        tc_status status;

        countdown = 0;
        status = tc_run_create(&config, &run, &err);
        countdown = NEVER;
        CHECK(status == TC_ERR_NO_MEMORY && run == NULL);
        CHECK(strstr(err.message, "3 steps") != NULL);
    }
    CHECK(tc_run_create(&config, &run, &err) == TC_OK);
    countdown = FAILURES ? 0 : NEVER;
    CHECK(tc_run_create(&config, &run, &err) == TC_OK); /* in the same memory */
    countdown = NEVER;
    tc_run_destroy(run);
    tc_plan_destroy(&plan);
}

int
main(void)
{
    for (int kind = TC_OP_BROADCAST; kind <= TC_OP_GATHER_SINGLE; kind++) {
        test_plan((tc_op_kind)kind);
    }
    test_run();
    return 0;
}
