/* SPDX-License-Identifier: BSD-3-Clause */
/* What a plan costs: two-phase all_reduce on 2 ranks as a plan and as a straight loop.
 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/native/state.h"
#include "base/copy.h"
#include "core/object.h"
#include "support/check.h"
#include "support/ranks.h"

enum { ROUNDS = 41 };

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* One end of the loop: own and other half in pieces, all four lanes of the pair. */
typedef struct loop_end {
    tc_shm_lane out;
    tc_shm_lane in;
    tc_shm_lane all_out;
    tc_shm_lane all_in;
    tc_reduce_fn sum;
    int32_t rank;
} loop_end;

static const uint8_t *
await_piece(tc_shm_lane *lane)
{
    const uint8_t *data;

    while (tc_shm_lane_peek(lane, &data) == NULL) {
        tc_cpu_relax();
    }
    return data;
}

static void
send_piece(tc_shm_lane *lane, const void *src, size_t bytes)
{
    tc_shm_piece piece = {.bytes = (uint32_t)bytes};
    uint8_t *slot;

    while ((slot = tc_shm_lane_reserve(lane)) == NULL) {
        tc_cpu_relax();
    }
    tc_shm_segment_fill(lane->segment, slot, src, bytes);
    tc_shm_lane_publish(lane, &piece);
}

static void
straight_loop(loop_end *end, uint8_t *buf, size_t bytes, size_t piece)
{
    size_t half = bytes / 2;
    uint8_t *mine = buf + (end->rank == 0 ? 0 : half);
    uint8_t *theirs = buf + (end->rank == 0 ? half : 0);

    for (size_t at = 0; at < half; at += piece) {
        size_t n = half - at < piece ? half - at : piece;
        const uint8_t *data;
        const void *srcs[2];

        send_piece(&end->out, theirs + at, n);
        data = await_piece(&end->in);
        srcs[end->rank] = mine + at;
        srcs[1 - end->rank] = data;
        end->sum(mine + at, srcs, 2, n / 4);
        tc_shm_lane_release(&end->in);
        send_piece(&end->all_out, mine + at, n);
        data = await_piece(&end->all_in);
        tc_copy_to_user(theirs + at, data, n, false);
        tc_shm_lane_release(&end->all_in);
    }
}

static void
open_loop(loop_end *end, tc_comm *comm, int32_t rank)
{
    tc_shm_segment *segment = ((tc_native *)comm->membership->ctx)->segment;
    tc_error err;

    tc_shm_lane_open_writer(segment, TC_SHM_LANE_PAIR, 1 - rank, &end->out);
    tc_shm_lane_open_reader(segment, TC_SHM_LANE_PAIR, 1 - rank, &end->in);
    tc_shm_lane_open_writer(segment, TC_SHM_LANE_MCAST, -1, &end->all_out);
    tc_shm_lane_open_reader(segment, TC_SHM_LANE_MCAST, 1 - rank, &end->all_in);
    CHECK(tc_shm_lane_prepare(&end->out, segment, 65536, &err) == TC_OK);
    CHECK(tc_shm_lane_prepare(&end->all_out, segment, 65536, &err) == TC_OK);
    CHECK(tc_reduce_find(TC_FLOAT32, TC_REDOP_SUM, &end->sum, &err) == TC_OK);
    end->rank = rank;
}

static void
body(tc_test_rank *self)
{
    tc_comm *planned = tc_test_comm(self, 60);
    tc_comm *looped = tc_test_comm(self, 60);
    size_t most = (size_t)16 << 20;
    uint8_t *buf = aligned_alloc(4096, most);
    loop_end end;
    tc_error err;

    CHECK(buf != NULL);
    for (size_t i = 0; i < most; i++) {
        buf[i] = 0;
    }
    open_loop(&end, looped, self->rank);
    for (size_t bytes = 65536; bytes <= most; bytes *= 4) {
        double plan_us[ROUNDS];
        double loop_us[ROUNDS];
        double ratio[ROUNDS];
        size_t piece = bytes >= 262144 ? 65536 : bytes / 4;
        int n = (int)((2u << 20) / bytes) + 1;
        tc_call call = {.kind = TC_OP_ALL_REDUCE,
                        .dtype = TC_FLOAT32,
                        .redop = TC_REDOP_SUM,
                        .count = bytes / 4,
                        .in = buf,
                        .out = buf};

        for (int k = 0; k < ROUNDS; k++) {
            uint64_t t0 = tc_clock_ns();
            uint64_t t1;
            uint64_t t2;

            for (int i = 0; i < n; i++) {
                CHECK(tc_test_call(planned, &call, &err) == TC_OK);
            }
            t1 = tc_clock_ns();
            for (int i = 0; i < n; i++) {
                straight_loop(&end, buf, bytes, piece);
            }
            t2 = tc_clock_ns();
            plan_us[k] = (double)(t1 - t0) / 1e3 / n;
            loop_us[k] = (double)(t2 - t1) / 1e3 / n;
            ratio[k] = plan_us[k] / loop_us[k];
        }
        qsort(plan_us, ROUNDS, sizeof(double), compare);
        qsort(loop_us, ROUNDS, sizeof(double), compare);
        qsort(ratio, ROUNDS, sizeof(double), compare);
        if (self->rank == 0) {
            printf(
                "%9zu bytes: plan %9.2f us, loop %9.2f us (medians), ratio of a round "
                "%.3f (p25 %.3f, p75 %.3f); best %.2f and %.2f\n",
                bytes, plan_us[ROUNDS / 2], loop_us[ROUNDS / 2], ratio[ROUNDS / 2],
                ratio[ROUNDS / 4], ratio[3 * ROUNDS / 4], plan_us[0], loop_us[0]);
        }
    }
    free(buf);
    tc_comm_release(planned);
    tc_comm_release(looped);
}

int
main(void)
{
    tc_test_run_processes(2, body, NULL, NULL);
    return 0;
}
