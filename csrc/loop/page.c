/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and mapping process pages. */
#include "loop/page.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

_Static_assert(sizeof(tc_bell) == 64, "the bell has a line of its own");
_Static_assert(offsetof(tc_page, bell) == 64,
               "peers poll the first line, write the next");
_Static_assert(sizeof(tc_ring_entry) == 64, "one line an entry");
_Static_assert(sizeof(tc_heap_entry) == 32, "two entries a line");

/* Field 22 of /proc/self/stat; 0 where it cannot be read. */
static uint64_t
read_start_ticks(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    size_t n = 0;
    const char *at;
    unsigned long long ticks = 0;

    if (file == NULL) {
        return 0;
    }
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    at = strrchr(text, ')'); /* the command's name may hold anything */
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL || sscanf(at, "%llu", &ticks) != 1) {
        return 0;
    }
    return ticks;
}

static tc_status
map_page(int fd, tc_page **page_p, tc_error *err)
{
    void *at = mmap(NULL, sizeof(tc_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        return tc_error_errno(err, "mmap of a process page of %zu bytes",
                              sizeof(tc_page));
    }
    /* A forked child must not write into what its parent's peers read. */
    madvise(at, sizeof(tc_page), MADV_DONTFORK);
    *page_p = at;
    return TC_OK;
}

tc_status
tc_page_create(tc_page **page_p, int *fd_p, tc_error *err)
{
    tc_status status;
    tc_page *page = NULL;
    uint64_t id = 0;
    int fd = memfd_create("torchcomms-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return tc_error_errno(err, "memfd_create of the process page");
    }
    /* Written through the descriptor first: without memory write() fails, while a store
     * to the mapping would be a SIGBUS. */
    for (size_t done = 0; done < sizeof(tc_page);) {
        static const char zeros[TC_RING_ENTRIES];
        size_t left = sizeof(tc_page) - done;
        ssize_t n = write(fd, zeros, left < sizeof(zeros) ? left : sizeof(zeros));

        if (n < 0) {
            status = tc_error_errno(err, "process page of %zu bytes", sizeof(tc_page));
            goto err_close;
        }
        done += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        status = tc_error_errno(err, "seals of the process page");
        goto err_close;
    }
    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
        status = tc_error_errno(err, "getrandom");
        goto err_close;
    }
    status = map_page(fd, &page, err);
    if (status != TC_OK) {
        goto err_close;
    }
    page->pid = getpid();
    page->start_ticks = read_start_ticks();
    page->id = id;
    page->magic = TC_PAGE_MAGIC;
    *page_p = page;
    *fd_p = fd;
    return TC_OK;

err_close:
    close(fd);
    return status;
}

tc_status
tc_page_map(int fd, tc_page **page_p, tc_error *err)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    tc_page *page = NULL;

    if (fstat(fd, &info) != 0) {
        return tc_error_errno(err, "fstat of a peer's process page");
    }
    if ((uint64_t)info.st_size != sizeof(tc_page) || seals < 0 ||
        (seals & SEALS) != SEALS) {
        return tc_error_set(err, TC_ERR_SYSTEM,
                            "peer's process page has %lld bytes and seals %d, expected "
                            "%zu and %d: another version of torchcomms?",
                            (long long)info.st_size, seals, sizeof(tc_page), SEALS);
    }
    TC_TRY(map_page(fd, &page, err));
    if (page->magic != TC_PAGE_MAGIC) {
        uint32_t magic = page->magic;

        tc_page_unmap(page);
        return tc_error_set(err, TC_ERR_SYSTEM, "peer's process page has magic %08x",
                            magic);
    }
    *page_p = page;
    return TC_OK;
}

void
tc_page_unmap(tc_page *page)
{
    munmap(page, sizeof(*page));
}
