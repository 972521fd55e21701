/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer's heap seen from here: its regions, mapped when they are first asked for. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/error.h"
#include "loop/heap.h"

/* Nobody can make the file shorter than what is mapped here. */
#define SEALS F_SEAL_SHRINK

/* Of the region that the peer's entry showed with this generation; 0: none. */
typedef struct mapping {
    uint64_t generation;
    const uint8_t *base;
    uint64_t bytes;
} mapping;

struct tc_heap_view {
    const tc_page *page;
    mapping mappings[TC_HEAP_REGIONS];
};

tc_status
tc_heap_view_create(const tc_page *page, tc_heap_view **view_p, tc_error *err)
{
    tc_heap_view *view = calloc(1, sizeof(*view));

    if (view == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "view of a peer's heap");
    }
    view->page = page;
    *view_p = view;
    return TC_OK;
}

static void
unmap(mapping *m)
{
    if (m->generation != 0) {
        munmap((void *)(uintptr_t)m->base, (size_t)m->bytes);
        m->generation = 0;
    }
}

void
tc_heap_view_destroy(tc_heap_view *view)
{
    if (view == NULL) {
        return;
    }
    for (int i = 0; i < TC_HEAP_REGIONS; i++) {
        unmap(&view->mappings[i]);
    }
    free(view);
}

/* Memory that the peer has given back lives as long as it is mapped here. */
static void
unmap_outdated(tc_heap_view *view)
{
    for (int i = 0; i < TC_HEAP_REGIONS; i++) {
        if (view->mappings[i].generation !=
            tc_load_acquire_u64(&view->page->regions[i].generation)) {
            unmap(&view->mappings[i]);
        }
    }
}

/* Whether the open file is the region that the entry tells of: the descriptor may be
 * another one by now, or that of another process. */
static tc_status
check_file(int fd, const tc_heap_entry *entry, tc_error *err)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &info) != 0) {
        return tc_error_errno(err, "fstat of a peer's heap");
    }
    if ((uint64_t)info.st_ino != entry->inode ||
        (uint64_t)info.st_size != entry->bytes || seals < 0 ||
        (seals & SEALS) != SEALS) {
        return tc_error_set(
            err, TC_ERR_SYSTEM,
            "descriptor %d of the peer has inode %llu, %lld bytes and "
            "seals %d, expected inode %llu and %llu bytes",
            (int)entry->fd, (unsigned long long)info.st_ino, (long long)info.st_size,
            seals, (unsigned long long)entry->inode, (unsigned long long)entry->bytes);
    }
    return TC_OK;
}

static tc_status
map(const tc_page *page, const tc_heap_entry *entry, mapping *m, tc_error *err)
{
    char path[64];
    tc_status status;
    void *base;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)page->pid, (int)entry->fd);
    /* Whatever it is, opening it shall not wait. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return tc_error_errno(err, "%s, a peer's heap", path);
    }
    status = check_file(fd, entry, err);
    if (status != TC_OK) {
        goto out;
    }
    base =
        mmap(NULL, (size_t)entry->bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        status = tc_error_errno(err, "mmap of a peer's heap, %llu bytes",
                                (unsigned long long)entry->bytes);
        goto out;
    }
    madvise(base, (size_t)entry->bytes, MADV_DONTFORK);
    *m = (mapping){entry->generation, base, entry->bytes};
out:
    close(fd);
    return status;
}

tc_status
tc_heap_view_find(tc_heap_view *view, tc_heap_place place, uint64_t bytes,
                  const void **ptr_p, tc_error *err)
{
    const tc_heap_entry *shown;
    tc_heap_entry entry;
    mapping *m;

    if (place.region == 0 || place.region > TC_HEAP_REGIONS) {
        return tc_error_set(err, TC_ERR_SYSTEM, "region %u of a peer's heap",
                            place.region);
    }
    shown = &view->page->regions[place.region - 1];
    m = &view->mappings[place.region - 1];
    entry.generation = tc_load_acquire_u64(&shown->generation);
    if (entry.generation == 0 || entry.generation != m->generation) {
        entry.bytes = shown->bytes;
        entry.inode = shown->inode;
        entry.fd = shown->fd;
        if (entry.generation == 0 ||
            tc_load_acquire_u64(&shown->generation) != entry.generation) {
            return tc_error_set(err, TC_ERR_SYSTEM,
                                "region %u of a peer's heap is gone", place.region);
        }
        unmap_outdated(view);
        TC_TRY(map(view->page, &entry, m, err));
    }
    if (place.offset > m->bytes || bytes > m->bytes - place.offset) {
        return tc_error_set(err, TC_ERR_SYSTEM,
                            "%llu bytes at %llu of a region of %llu of a peer's heap",
                            (unsigned long long)bytes, (unsigned long long)place.offset,
                            (unsigned long long)m->bytes);
    }
    *ptr_p = m->base + place.offset;
    return TC_OK;
}
