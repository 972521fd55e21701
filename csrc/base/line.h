/* SPDX-License-Identifier: BSD-3-Clause */
/* Round trip of a bare cache line between two processes: how near their CPUs are. */
#ifndef TC_BASE_LINE_H
#define TC_BASE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* In memory that both map, zero at first. A word counts up by 2 for each trip; its
 * lowest bit marks the last one of a call. */
typedef struct tc_line {
    _Alignas(64) uint32_t there; /* written by the leader */
    _Alignas(64) uint32_t back; /* written by the follower: the word it saw */
} tc_line;

/* Nanoseconds of one round trip: the fastest of a few short bursts, so that neither a
 * descheduled peer nor an interrupt counts. Takes well under a millisecond once both
 * sides are there. One side leads; the follower gets 0. Fails when the other does not
 * answer within timeout_ns, after which the line must not be used again. */
tc_status
tc_line_round_trip(tc_line *line, bool leads, uint64_t timeout_ns, double *ns_p,
                   tc_error *err);

#endif
