/* SPDX-License-Identifier: BSD-3-Clause */
/* The line round trip: both sides end together, call after call, and none waits
 * forever. */
#include "base/line.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"

enum { CALLS = 20 };

static tc_line line;

static void
leads_and_follows(tc_test_rank *self)
{
    tc_line *shared = self->ctx;
    bool leads = self->rank == 0;
    double ns = -1;
    tc_error err;

    for (int call = 0; call < CALLS; call++) {
        CHECK(tc_line_round_trip(shared, leads, 60 * TC_NSEC_PER_SEC, &ns, &err) ==
              TC_OK);
        CHECK(leads ? ns > 0 : ns == 0);
    }
}

static void
times_out_alone(void)
{
    double ns = -1;
    tc_error err;

    CHECK(tc_line_round_trip(&line, true, 1, &ns, &err) == TC_ERR_TIMEOUT);
    CHECK(strstr(err.message, "no answer") != NULL);
    CHECK(ns == -1);
}

int
main(void)
{
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    tc_test_run_threads(2, leads_and_follows, &line);
    CHECK(line.there == line.back);
    tc_test_run_processes(2, leads_and_follows, page, NULL);
    times_out_alone();
    return 0;
}
