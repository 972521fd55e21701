/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of shared memory: first fit in regions, each a sealed memfd. */
#include "loop/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define PAGE_BYTES UINT64_C(4096)
#define REGION_BYTES (UINT64_C(64) << 20)
#define MOST_BYTES (UINT64_C(1) << 47) /* there is no more address space */
#define MIB(bytes) ((double)(bytes) / (1024.0 * 1024.0))

/* A stretch of a region. Invariants: the blocks of a region cover it in the order of
 * addresses; no two free ones are neighbours. Kept apart from the memory, which peers
 * map. */
typedef struct block {
    struct region *region;
    struct block *prev;
    struct block *next;
    uint64_t offset;
    uint64_t bytes;
    bool used;
} block;

/* Invariant: the bytes below `present` are there and stay there; every used block ends
 * below it. */
typedef struct region {
    tc_heap *heap;
    struct region *next;
    block *first;
    uint64_t used; /* blocks */
    uint8_t *base;
    uint64_t bytes;
    uint64_t present;
    int fd;
    int slot; /* in the page's table; -1: it was full */
} region;

/* Invariants. Everything but `pid` is guarded by `lock`. At most one region has no used
 * block: it is kept for the next one. */
struct tc_heap {
    pthread_mutex_t lock;
    int32_t pid; /* a forked child does not own it, and `lock` may be held for ever */
    uint64_t refs; /* the engine's, and one a used block */
    tc_heap_entry *table; /* NULL once closed */
    uint64_t generation; /* the last one given */
    region *regions;
};

static bool
is_ours(const tc_heap *heap)
{
    return heap->pid == (int32_t)getpid();
}

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Running out of memory or of address space is told apart from other failures. */
static tc_status
fail(const char *what, uint64_t bytes, tc_error *err)
{
    int code = errno;
    tc_status status = tc_error_errno(err, "%s of %llu bytes (%.1f MiB) for tensors",
                                      what, (unsigned long long)bytes, MIB(bytes));

    if (code == ENOMEM || code == ENOSPC || code == EFAULT) {
        status = TC_ERR_NO_MEMORY;
        if (err != NULL) {
            err->status = status;
        }
    }
    return status;
}

tc_status
tc_heap_create(tc_page *page, tc_heap **heap_p, tc_error *err)
{
    tc_heap *heap = calloc(1, sizeof(*heap));

    if (heap == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "heap object");
    }
    pthread_mutex_init(&heap->lock, NULL);
    heap->pid = (int32_t)getpid();
    heap->refs = 1;
    heap->table = page->regions;
    *heap_p = heap;
    return TC_OK;
}

/* Regions ------------------------------------------------------------------------- */

static void
publish_locked(tc_heap *heap, region *reg)
{
    struct stat info;

    reg->slot = -1;
    if (fstat(reg->fd, &info) != 0) {
        return; /* it serves this process all the same */
    }
    for (int i = 0; i < TC_HEAP_REGIONS; i++) {
        tc_heap_entry *entry = &heap->table[i];

        if (tc_load_relaxed_u64(&entry->generation) == 0) {
            entry->bytes = reg->bytes;
            entry->inode = (uint64_t)info.st_ino;
            entry->fd = reg->fd;
            tc_store_release_u64(&entry->generation, ++heap->generation);
            reg->slot = i;
            return;
        }
    }
}

/* Growing a file above RLIMIT_FSIZE raises SIGXFSZ, which kills by default. */
static tc_status
grow_file(int fd, uint64_t bytes, tc_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes) {
        return tc_error_set(err, TC_ERR_NO_MEMORY,
                            "shared memory of %llu bytes (%.1f MiB) for tensors, above "
                            "the file size limit of %llu (ulimit -f)",
                            (unsigned long long)bytes, MIB(bytes),
                            (unsigned long long)limit.rlim_cur);
    }
    return ftruncate(fd, (off_t)bytes) == 0 ? TC_OK : fail("ftruncate", bytes, err);
}

/* Fills in `fd` and `base`. Sealed, it cannot shrink under a peer, which would be a
 * SIGBUS there. */
static tc_status
map_region(region *reg, tc_error *err)
{
    tc_status status;
    void *base;

    reg->fd = memfd_create("torchcomms-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (reg->fd < 0) {
        return fail("memfd_create", reg->bytes, err);
    }
    status = grow_file(reg->fd, reg->bytes, err);
    if (status == TC_OK && fcntl(reg->fd, F_ADD_SEALS, SEALS) != 0) {
        status = fail("sealing", reg->bytes, err);
    }
    if (status != TC_OK) {
        goto err_close;
    }
    base = mmap(NULL, (size_t)reg->bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE, reg->fd, 0);
    if (base == MAP_FAILED) {
        status = fail("address space", reg->bytes, err);
        goto err_close;
    }
    reg->base = base;
    return TC_OK;

err_close:
    close(reg->fd);
    return status;
}

static tc_status
add_region_locked(tc_heap *heap, uint64_t bytes, region **region_p, tc_error *err)
{
    region *reg = calloc(1, sizeof(*reg));
    block *whole = calloc(1, sizeof(*whole));
    tc_status status;

    if (reg == NULL || whole == NULL) {
        status = tc_error_set(err, TC_ERR_NO_MEMORY, "region of the heap");
        goto err_free;
    }
    reg->heap = heap;
    reg->bytes = bytes < REGION_BYTES ? REGION_BYTES : round_up(bytes, PAGE_BYTES);
    reg->first = whole;
    whole->region = reg;
    whole->bytes = reg->bytes;
    status = map_region(reg, err);
    if (status != TC_OK) {
        goto err_free;
    }
    publish_locked(heap, reg);
    reg->next = heap->regions;
    heap->regions = reg;
    *region_p = reg;
    return TC_OK;

err_free:
    free(whole);
    free(reg);
    return status;
}

/* The region has no used block, so it is one free block. */
static void
remove_region_locked(tc_heap *heap, region *reg)
{
    region **at = &heap->regions;

    while (*at != reg) {
        at = &(*at)->next;
    }
    *at = reg->next;
    if (heap->table != NULL && reg->slot >= 0) {
        tc_store_release_u64(&heap->table[reg->slot].generation, 0);
    }
    munmap(reg->base, (size_t)reg->bytes);
    close(reg->fd);
    free(reg->first);
    free(reg);
}

/* Keeps `kept` and gives the other empty regions back to the system. */
static void
trim_locked(tc_heap *heap, const region *kept)
{
    region *next;

    for (region *reg = heap->regions; reg != NULL; reg = next) {
        next = reg->next;
        if (reg->used == 0 && reg != kept) {
            remove_region_locked(heap, reg);
        }
    }
}

/* Makes the bytes below `end` present. What was once touched stays, so that a block
 * used again costs nothing. */
static tc_status
populate(region *reg, uint64_t end, tc_error *err)
{
    uint64_t bytes;
    int rc;

    end = round_up(end, PAGE_BYTES);
    if (end <= reg->present) {
        return TC_OK;
    }
    bytes = end - reg->present;
    do {
        rc = madvise(reg->base + reg->present, (size_t)bytes, MADV_POPULATE_WRITE);
        if (rc != 0 && errno == EINVAL) { /* before Linux 5.14 */
            rc = fallocate(reg->fd, 0, (off_t)reg->present, (off_t)bytes);
        }
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc != 0) {
        return fail("shared memory", bytes, err);
    }
    reg->present = end;
    return TC_OK;
}

/* Blocks -------------------------------------------------------------------------- */

static block *
find_free_locked(const tc_heap *heap, uint64_t bytes)
{
    for (region *reg = heap->regions; reg != NULL; reg = reg->next) {
        for (block *b = reg->first; b != NULL; b = b->next) {
            if (!b->used && b->bytes >= bytes) {
                return b;
            }
        }
    }
    return NULL;
}

/* Cuts the block after `bytes`; `rest` becomes what is behind. */
static void
split(block *b, uint64_t bytes, block *rest)
{
    *rest = (block){.region = b->region,
                    .prev = b,
                    .next = b->next,
                    .offset = b->offset + bytes,
                    .bytes = b->bytes - bytes};
    if (rest->next != NULL) {
        rest->next->prev = rest;
    }
    b->next = rest;
    b->bytes = bytes;
}

/* Joins the block with the one behind it. */
static void
join_next(block *b)
{
    block *next = b->next;

    b->bytes += next->bytes;
    b->next = next->next;
    if (b->next != NULL) {
        b->next->prev = b;
    }
    free(next);
}

static tc_status
take_locked(tc_heap *heap, uint64_t bytes, block **block_p, tc_error *err)
{
    block *found = find_free_locked(heap, bytes);
    block *rest = NULL;
    region *reg = NULL;

    if (found == NULL) {
        TC_TRY(add_region_locked(heap, bytes, &reg, err));
        found = reg->first;
    }
    TC_TRY(populate(found->region, found->offset + bytes, err));
    if (found->bytes > bytes) {
        rest = malloc(sizeof(*rest));
        if (rest == NULL) {
            return tc_error_set(err, TC_ERR_NO_MEMORY, "block of the heap");
        }
        split(found, bytes, rest);
    }
    found->used = true;
    found->region->used++;
    heap->refs++;
    *block_p = found;
    return TC_OK;
}

/* Unlocks. The last reference frees. */
static void
unref_locked(tc_heap *heap)
{
    bool last = --heap->refs == 0;

    if (last) {
        trim_locked(heap, NULL);
    }
    pthread_mutex_unlock(&heap->lock);
    if (last) {
        pthread_mutex_destroy(&heap->lock);
        free(heap);
    }
}

static void
release_block(void *ctx)
{
    block *b = ctx;
    region *reg = b->region;
    tc_heap *heap = reg->heap;

    if (!is_ours(heap)) {
        return; /* the parent's */
    }
    pthread_mutex_lock(&heap->lock);
    b->used = false;
    reg->used--;
    if (b->next != NULL && !b->next->used) {
        join_next(b);
    }
    if (b->prev != NULL && !b->prev->used) {
        join_next(b->prev);
    }
    if (reg->used == 0) {
        trim_locked(heap, heap->table != NULL ? reg : NULL);
    }
    unref_locked(heap);
}

tc_status
tc_heap_alloc(tc_heap *heap, uint64_t bytes, tc_memory *memory_p, tc_error *err)
{
    tc_status status;
    block *b = NULL;

    if (!is_ours(heap)) {
        return tc_error_set(err, TC_ERR_FORKED,
                            "%llu bytes from the heap of the process that process %d "
                            "is a fork of",
                            (unsigned long long)bytes, (int)getpid());
    }
    if (bytes > MOST_BYTES) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "%llu bytes for tensors",
                            (unsigned long long)bytes);
    }
    pthread_mutex_lock(&heap->lock);
    if (heap->table == NULL) {
        status = tc_error_set(err, TC_ERR_FINALIZED,
                              "%llu bytes from the heap of an engine that has ended",
                              (unsigned long long)bytes);
    } else {
        status =
            take_locked(heap, round_up(bytes == 0 ? 1 : bytes, TC_HEAP_ALIGN), &b, err);
    }
    if (status == TC_OK) {
        *memory_p = (tc_memory){
            .ptr = b->region->base + b->offset, .ctx = b, .release = release_block};
    } else if (heap->table != NULL) {
        trim_locked(heap, NULL); /* a region that could not be filled */
    }
    pthread_mutex_unlock(&heap->lock);
    return status;
}

void
tc_heap_close(tc_heap *heap)
{
    if (!is_ours(heap)) {
        return; /* the parent's, and its lock may be held for ever */
    }
    pthread_mutex_lock(&heap->lock);
    for (region *reg = heap->regions; reg != NULL; reg = reg->next) {
        if (reg->slot >= 0) {
            tc_store_release_u64(&heap->table[reg->slot].generation, 0);
        }
    }
    heap->table = NULL;
    trim_locked(heap, NULL);
    unref_locked(heap);
}

tc_heap_place
tc_heap_locate(tc_heap *heap, const void *ptr, uint64_t bytes)
{
    tc_heap_place place = {0};
    uintptr_t at = (uintptr_t)ptr;

    pthread_mutex_lock(&heap->lock);
    for (region *reg = heap->regions; reg != NULL; reg = reg->next) {
        uintptr_t base = (uintptr_t)reg->base;

        if (at >= base && at - base < reg->bytes && reg->slot >= 0 &&
            bytes <= reg->bytes - (at - base)) {
            place = (tc_heap_place){(uint32_t)reg->slot + 1, at - base};
            break;
        }
    }
    pthread_mutex_unlock(&heap->lock);
    return place;
}
