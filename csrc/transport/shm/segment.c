/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a segment: made, sealed, mapped, populated, unmapped. */
#include "transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/error.h"
#include "transport/shm/rendezvous.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#define MIB(bytes) ((double)(bytes) / (1024.0 * 1024.0))

/* Running out of memory or of address space is told apart from other failures. */
static tc_status
fail(int code, tc_error *err, const char *what, uint64_t bytes)
{
    tc_status status;

    errno = code;
    status = tc_error_errno(err, "%s, %.1f MiB", what, MIB(bytes));
    if (code == ENOMEM || code == ENOSPC || code == EFAULT) {
        status = TC_ERR_NO_MEMORY;
        if (err != NULL) {
            err->status = status;
        }
    }
    return status;
}

tc_status
tc_shm_segment_allocate(const tc_shm_member *self, tc_shm_segment **segment_p,
                        tc_error *err)
{
    tc_shm_segment *segment = calloc(1, sizeof(*segment));

    if (segment != NULL) {
        segment->pages = calloc((size_t)self->size, sizeof(tc_page *));
    }
    if (segment == NULL || segment->pages == NULL) {
        free(segment);
        return tc_error_set(err, TC_ERR_NO_MEMORY, "table of %d process pages",
                            self->size);
    }
    tc_shm_layout_compute(self->size, &segment->layout);
    tc_shm_distance_init(&segment->distance);
    segment->rank = self->rank;
    segment->pages[self->rank] = self->page;
    segment->pid = (int32_t)getpid();
    segment->fd = -1;
    *segment_p = segment;
    return TC_OK;
}

static tc_status
map(tc_shm_segment *segment, int fd, tc_error *err)
{
    size_t bytes = (size_t)segment->layout.bytes;
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (base == MAP_FAILED) {
        return fail(errno, err, "address space of the shared segment", bytes);
    }
    /* A forked child is no rank: it must not be able to write here. */
    if (madvise(base, bytes, MADV_DONTFORK) != 0) {
        tc_status status = fail(errno, err, "shared segment, MADV_DONTFORK", bytes);

        munmap(base, bytes);
        return status;
    }
    segment->base = base;
    return TC_OK;
}

/* Growing a file above RLIMIT_FSIZE raises SIGXFSZ, which kills by default. */
static tc_status
check_file_limit(uint64_t bytes, tc_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes) {
        return tc_error_set(err, TC_ERR_NO_MEMORY,
                            "shared segment, %.1f MiB, above the file size limit of "
                            "%.1f MiB (ulimit -f)",
                            MIB(bytes), MIB(limit.rlim_cur));
    }
    return TC_OK;
}

tc_status
tc_shm_segment_create(tc_shm_segment *segment, int *fd_p, tc_error *err)
{
    uint64_t bytes = segment->layout.bytes;
    tc_status status;
    int fd;

    TC_TRY(check_file_limit(bytes, err));
    fd = memfd_create("torchcomms", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return fail(errno, err, "shared segment, memfd_create", bytes);
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        status = fail(errno, err, "shared segment, ftruncate", bytes);
        goto err_close;
    }
    /* Sealed, no peer can shrink it under the others, which would be their SIGBUS. */
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        status = fail(errno, err, "shared segment, sealing", bytes);
        goto err_close;
    }
    status = map(segment, fd, err);
    if (status != TC_OK) {
        goto err_close;
    }
    *fd_p = fd;
    return TC_OK;

err_close:
    close(fd);
    return status;
}

tc_status
tc_shm_segment_attach(tc_shm_segment *segment, int fd, tc_error *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "what rank 0 sent as the shared segment is not sealed "
                            "(seals %d)",
                            seals);
    }
    if (fstat(fd, &st) != 0) {
        return tc_error_errno(err, "size of the shared segment");
    }
    if (st.st_size < 0 || (uint64_t)st.st_size != segment->layout.bytes) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "the shared segment has %jd bytes, expected %" PRIu64,
                            (intmax_t)st.st_size, segment->layout.bytes);
    }
    return map(segment, fd, err);
}

tc_status
tc_shm_segment_prepare(tc_shm_segment *segment, int fd, tc_error *err)
{
    const tc_shm_layout *layout = &segment->layout;
    uint64_t rank = (uint64_t)segment->rank;

    /* Zero bytes at the start: asks only whether the kernel knows this advice. */
    if (madvise(segment->base, 0, MADV_POPULATE_WRITE) != 0 && errno == EINVAL) {
        segment->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (segment->fd < 0) {
            return tc_error_errno(err, "descriptor of the shared segment");
        }
    }
    if (rank == 0) {
        TC_TRY(tc_shm_segment_populate(segment, layout->state_offset,
                                       sizeof(tc_shm_state), err));
    }
    TC_TRY(tc_shm_segment_populate(segment,
                                   layout->rank_offset + layout->rank_stride * rank,
                                   layout->rank_stride, err));
    TC_TRY(tc_shm_segment_populate(
        segment, layout->exchange_offset + layout->exchange_stride * rank,
        layout->exchange_stride, err));
    tc_affinity_read(tc_shm_segment_rank(segment, segment->rank)->affinity);
    return TC_OK;
}

void
tc_shm_segment_close(tc_shm_segment *segment)
{
    if (segment == NULL) {
        return;
    }
    if (segment->pid == (int32_t)getpid()) {
        for (int32_t r = 0; r < segment->layout.size; r++) {
            if (r != segment->rank && segment->pages[r] != NULL) {
                tc_page_unmap(segment->pages[r]);
            }
        }
        if (segment->base != NULL) {
            munmap(segment->base, (size_t)segment->layout.bytes);
        }
    }
    if (segment->fd >= 0) {
        close(segment->fd);
    }
    free(segment->pages);
    free(segment);
}

tc_status
tc_shm_segment_populate(tc_shm_segment *segment, uint64_t offset, uint64_t bytes,
                        tc_error *err)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t start = offset / page * page;
    int rc;

    if (offset > segment->layout.bytes || bytes > segment->layout.bytes - offset) {
        return tc_error_set(err, TC_ERR_INTERNAL,
                            "populating %" PRIu64 " bytes from %" PRIu64
                            " of a segment of %" PRIu64,
                            bytes, offset, segment->layout.bytes);
    }
    if (bytes == 0) {
        return TC_OK;
    }
    do {
        rc = segment->fd >= 0
                 ? fallocate(segment->fd, 0, (off_t)offset, (off_t)bytes)
                 : madvise(segment->base + start, (size_t)(offset - start + bytes),
                           MADV_POPULATE_WRITE);
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    return rc == 0 ? TC_OK : fail(errno, err, "memory of the shared segment", bytes);
}
