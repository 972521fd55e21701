/* SPDX-License-Identifier: BSD-3-Clause */
/* What the leader's and the members' side of a segment's start-up have in common. */
#ifndef TC_SHM_RENDEZVOUS_H
#define TC_SHM_RENDEZVOUS_H

#include "transport/shm/segment.h"

/* A segment that is not mapped yet, with no page but the own one; given back by
 * tc_shm_segment_close in every state. */
tc_status
tc_shm_segment_allocate(const tc_shm_member *self, tc_shm_segment **segment_p,
                        tc_error *err);

/* Leader: makes the memory and maps it. The descriptor is the caller's, for the
 * members. */
tc_status
tc_shm_segment_create(tc_shm_segment *segment, int *fd_p, tc_error *err);

/* Member: maps what the leader sent, after checking its size and seals. */
tc_status
tc_shm_segment_attach(tc_shm_segment *segment, int fd, tc_error *err);

/* Populates what this rank writes from the first operation on and writes its affinity.
 * Keeps a copy of `fd` where later population needs it. */
tc_status
tc_shm_segment_prepare(tc_shm_segment *segment, int fd, tc_error *err);

#endif
