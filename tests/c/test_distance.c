/* SPDX-License-Identifier: BSD-3-Clause */
/* Near or far: when the answer changes, and which samples count. */
#include "transport/shm/distance.h"

#include "support/check.h"

enum { NEAR_NS = 40, LIMIT_NS = 90, FAR_NS = 130 };

static tc_shm_distance
make_distance(bool matters)
{
    tc_shm_distance d;

    tc_shm_distance_init(&d);
    CHECK(!d.far && d.votes == 0);
    d.matters = matters;
    d.far_ns = LIMIT_NS;
    return d;
}

static int
samples_until(tc_shm_distance *d, bool far)
{
    int n = 0;

    while (d->far != far) {
        tc_shm_distance_add(d, far ? FAR_NS : NEAR_NS);
        n++;
    }
    return n;
}

static void
test_answer_needs_a_majority(void)
{
    tc_shm_distance d = make_distance(true);

    CHECK(samples_until(&d, true) == 4);
    /* Single ones of the other kind change nothing. */
    for (int i = 0; i < 20; i++) {
        tc_shm_distance_add(&d, NEAR_NS);
        tc_shm_distance_add(&d, FAR_NS);
        CHECK(d.far);
    }
    CHECK(samples_until(&d, false) == 8);
    CHECK(samples_until(&d, true) == 8);
}

/* How many news it takes until the next sample. */
static int
hear_until_sampled(tc_shm_distance *d, const uint64_t *beat)
{
    uint64_t before = d->count;
    int n = 0;

    while (d->count == before && n < 100) {
        tc_shm_distance_hear(d, beat);
        n++;
    }
    return n;
}

static void
test_only_a_changed_beat_counts(void)
{
    tc_shm_distance d = make_distance(true);
    _Alignas(64) uint64_t beat = 0;
    int8_t votes;

    tc_shm_distance_beat(&d, &beat);
    CHECK(beat == 1);
    CHECK(hear_until_sampled(&d, &beat) == 16);
    votes = d.votes;
    CHECK(votes != 0);
    CHECK(hear_until_sampled(&d, &beat) == 100);
    CHECK(d.votes == votes);
    tc_shm_distance_beat(&d, &beat);
    CHECK(hear_until_sampled(&d, &beat) <= 16);
}

static void
test_nothing_is_timed_where_it_does_not_matter(void)
{
    tc_shm_distance d = make_distance(false);
    _Alignas(64) uint64_t beat = 0;

    tc_shm_distance_beat(&d, &beat);
    CHECK(beat == 0);
    CHECK(hear_until_sampled(&d, &beat) == 100);
    CHECK(d.votes == 0 && !d.far);
}

int
main(void)
{
    test_answer_needs_a_majority();
    test_only_a_changed_beat_counts();
    test_nothing_is_timed_where_it_does_not_matter();
    return 0;
}
