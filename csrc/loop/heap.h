/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of this process that others on its host can map: what tensors are made from,
 * and how a peer finds them. */
#ifndef TC_LOOP_HEAP_H
#define TC_LOOP_HEAP_H

#include "loop/page.h"
#include "torchcomms/backend.h"

/* Regions of shared memory and the blocks in them. Counted: it is freed when its engine
 * has let go and its last block is freed, in whatever order. Any thread; a lock is
 * taken. A forked child can read its parent's blocks, but allocates none and frees
 * nothing. */
typedef struct tc_heap tc_heap;

/* `page` is where regions are published, borrowed until tc_heap_close. */
tc_status
tc_heap_create(tc_page *page, tc_heap **heap_p, tc_error *err);

/* From now on nothing is allocated and nothing published; blocks stay what they are. */
void
tc_heap_close(tc_heap *heap);

/* At least `bytes` bytes, aligned to TC_HEAP_ALIGN, not set to anything, all of them
 * present: touching them cannot fail. TC_ERR_NO_MEMORY tells how many were wanted. */
tc_status
tc_heap_alloc(tc_heap *heap, uint64_t bytes, tc_memory *memory_p, tc_error *err);

enum { TC_HEAP_ALIGN = 64 };

/* Where in its process's heap a buffer lies. */
typedef struct tc_heap_place {
    uint32_t region; /* index in tc_page.regions, plus 1; 0: in none that is shown */
    uint64_t offset;
} tc_heap_place;

/* The place of `bytes` bytes at `ptr`, which may lie anywhere. */
tc_heap_place
tc_heap_locate(tc_heap *heap, const void *ptr, uint64_t bytes);

/* The regions of one peer as far as this process has mapped them. One thread at a time.
 */
typedef struct tc_heap_view tc_heap_view;

/* `page` is the peer's, borrowed for the life of the view. */
tc_status
tc_heap_view_create(const tc_page *page, tc_heap_view **view_p, tc_error *err);

void
tc_heap_view_destroy(tc_heap_view *view);

/* The address here of `bytes` bytes at `place` of the peer's heap, for reading; maps
 * their region if that was not done before. What the peer says is checked. It is good
 * as long as the peer keeps the block, and fails where this process may not look at the
 * peer's descriptors (another pid namespace, another user). */
tc_status
tc_heap_view_find(tc_heap_view *view, tc_heap_place place, uint64_t bytes,
                  const void **ptr_p, tc_error *err);

#endif
