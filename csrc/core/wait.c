/* SPDX-License-Identifier: BSD-3-Clause */
/* The one waiting loop: poll, then yield, then sleep, always moving the communicator.
 */
#include <sched.h>
#include <time.h>

#include "base/bell.h"
#include "base/clock.h"
#include "core/object.h"

/* A sleeper looks up this often, for deaths that ring no bell and for signals. */
#define SLEEP_NS (25 * TC_NSEC_PER_MSEC)
/* Reading the clock costs as much as a poll. */
#define POLLS_PER_CLOCK 1000u
/* What spinning is cut down to where it does not pay: a few line round trips, so that
 * it is noticed when it pays again. */
#define LEAST_SPINS 20u
/* Sleep of one poll where the backend has no bell. */
#define BELL_LESS_NS (50 * 1000u)

typedef struct wait_state {
    tc_membership *membership;
    bool (*done)(const void *ctx);
    const void *ctx;
    uint64_t deadline_ns;
    const tc_interrupt *interrupt;
    tc_parking parking;
    uint32_t spins; /* polls before the first yield, at most what `parking` says */
    uint32_t idle; /* polls since something moved */
} wait_state;

/* Spinning pays where a peer runs at the same time. Where it shares this core, or is
 * far behind, each full spin is time taken from it: halved whenever something moved
 * only after a full spin, doubled whenever it moved during one. */
static void
adapt(wait_state *w)
{
    uint32_t most = w->parking.spins;
    uint32_t spins = w->idle > w->spins ? w->spins / 2 : w->spins * 2;

    if (w->idle == 0 || most <= LEAST_SPINS) {
        return;
    }
    spins = spins < LEAST_SPINS ? LEAST_SPINS : spins > most ? most : spins;
    w->spins = spins;
    tc_store_relaxed_u32(&w->membership->spins, spins);
}

/* Moves the communicator; true when there is a reason to look again at once. */
static bool
move(wait_state *w, uint64_t now_ns)
{
    tc_membership *m = w->membership;

    return m->backend->progress(m->ctx, now_ns) == TC_OK || w->done(w->ctx);
}

static void
sleep_without_bell(uint64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};

    nanosleep(&t, NULL);
}

static void
sleep_once(wait_state *w, uint64_t now_ns)
{
    uint64_t ns = SLEEP_NS;

    if (w->deadline_ns - now_ns < ns) {
        ns = w->deadline_ns - now_ns;
    }
    if (w->parking.bell == NULL) {
        sleep_without_bell(ns < BELL_LESS_NS ? ns : BELL_LESS_NS);
        return;
    }
    tc_bell *bell = (tc_bell *)(void *)w->parking.bell;
    uint32_t word = tc_bell_prepare(bell);

    if (move(w, now_ns)) {
        tc_bell_cancel(bell);
        adapt(w);
        w->idle = 0;
    } else {
        tc_bell_sleep(bell, word, ns);
    }
}

/* Looks at the clock, the deadline and the interrupt; TC_OK to go on. */
static tc_status
look_around(const wait_state *w, uint64_t *now_ns_p)
{
    *now_ns_p = tc_clock_ns();
    if (*now_ns_p >= w->deadline_ns) {
        return TC_EXPIRED;
    }
    if (w->interrupt != NULL && w->interrupt->interrupted != NULL &&
        w->interrupt->interrupted(w->interrupt->ctx)) {
        return TC_INTERRUPTED;
    }
    return TC_OK;
}

tc_status
tc_membership_wait(tc_membership *membership, bool (*done)(const void *ctx),
                   const void *ctx, uint64_t deadline_ns, const tc_interrupt *interrupt)
{
    wait_state w = {.membership = membership,
                    .done = done,
                    .ctx = ctx,
                    .deadline_ns = deadline_ns,
                    .interrupt = interrupt};
    uint64_t now_ns = 0;
    uint32_t since_clock = 0;

    membership->backend->parking(membership->ctx, &w.parking);
    w.spins = tc_load_relaxed_u32(&membership->spins);
    w.spins = w.spins < w.parking.spins ? w.spins : w.parking.spins;
    while (!done(ctx)) {
        bool sleepy = w.idle >= w.spins + w.parking.yields;

        if (sleepy || ++since_clock == POLLS_PER_CLOCK) {
            tc_status status = look_around(&w, &now_ns);

            since_clock = 0;
            if (status != TC_OK) {
                return done(ctx) ? TC_OK : status;
            }
        }
        if (sleepy) {
            sleep_once(&w, now_ns);
            continue;
        }
        if (move(&w, since_clock == 0 ? now_ns : 0)) {
            adapt(&w);
            w.idle = 0;
        } else if (w.idle++ < w.spins) {
            tc_cpu_relax();
        } else {
            sched_yield();
        }
    }
    return TC_OK;
}
