/* SPDX-License-Identifier: BSD-3-Clause */
/* The page a process shares with its neighbours: is it alive, how is it woken, what did
 * it do last. */
#ifndef TC_LOOP_PAGE_H
#define TC_LOOP_PAGE_H

#include "base/bell.h"
#include "base/ring.h"
#include "torchcomms/types.h"

enum { TC_HEAP_REGIONS = 256 };

/* A region of the owner's heap (heap.h) that a peer may map: its descriptor there, and
 * how to recognise it. Invariant: `generation` is 0 while the entry is empty or being
 * written, and no number is used twice. */
typedef struct tc_heap_entry {
    uint64_t generation;
    uint64_t bytes;
    uint64_t inode;
    int32_t fd;
    uint32_t unused;
} tc_heap_entry;

/* Layout shared between processes; sealed at this size.
 *
 * Invariants: `liveness` is 0 before the engine thread runs, then that thread's id, and
 * the kernel sets TC_PAGE_OWNER_DIED in it when the thread dies, whatever kills it
 * (robust list). `closed` is set before an orderly end, so a dead page that is not
 * closed is a crash. Only the owner writes anything but the bell. */
typedef struct tc_page {
    /* read by peers while they poll; written at birth and death */
    uint32_t liveness;
    uint32_t closed;
    int32_t pid;
    uint32_t magic;
    uint64_t start_ticks; /* of the process, from /proc/self/stat: tells pids apart */
    uint64_t id; /* random: tells engines of one process apart */
    uint64_t pad[4];
    tc_bell bell; /* on a line of its own: peers write it */
    tc_ring ring;
    tc_heap_entry regions[TC_HEAP_REGIONS];
} tc_page;

#define TC_PAGE_MAGIC 0x74637032u
#define TC_PAGE_OWNER_DIED 0x40000000u /* FUTEX_OWNER_DIED */

/* A plain load, cheap enough for a polling loop. */
static inline bool
tc_page_is_dead(const tc_page *page)
{
    return (tc_load_relaxed_u32(&page->liveness) & TC_PAGE_OWNER_DIED) != 0;
}

/* A new sealed page, mapped, and its descriptor. */
tc_status
tc_page_create(tc_page **page_p, int *fd_p, tc_error *err);

/* Maps a page received from a peer after checking size and seals; the descriptor stays
 * the caller's. */
tc_status
tc_page_map(int fd, tc_page **page_p, tc_error *err);

void
tc_page_unmap(tc_page *page);

#endif
