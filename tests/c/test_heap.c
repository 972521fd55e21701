/* SPDX-License-Identifier: BSD-3-Clause */
/* The heap: blocks that are cut, joined and given back; what peers can map; what a
 * machine without memory, a fork and an engine's end do to it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/engine.h"
#include "support/check.h"

#define MIB (UINT64_C(1) << 20)
#define POPULATE_WRITE 23

enum { BLOCKS = 64 };

static tc_engine *
make_engine(void)
{
    tc_engine *engine;
    tc_error err;

    CHECK(tc_engine_create(&engine, &err) == TC_OK);
    return engine;
}

static tc_memory
take(tc_heap *heap, uint64_t bytes)
{
    tc_memory memory;
    tc_error err;

    if (tc_heap_alloc(heap, bytes, &memory, &err) != TC_OK) {
        fprintf(stderr, "%s\n", err.message);
        CHECK(false);
    }
    CHECK((uintptr_t)memory.ptr % TC_HEAP_ALIGN == 0);
    return memory;
}

static void
give(tc_memory memory)
{
    memory.release(memory.ctx);
}

static int
count_regions(const tc_engine *engine)
{
    const tc_page *page = tc_engine_page(engine);
    int count = 0;

    for (int i = 0; i < TC_HEAP_REGIONS; i++) {
        count += page->regions[i].generation != 0;
    }
    return count;
}

/* Blocks of all sizes, freed in an order of their own, hold what was written to them;
 * then all is one free block again. */
static void
test_blocks(void)
{
    tc_engine *engine = make_engine();
    tc_heap *heap = tc_engine_heap(engine);
    tc_memory blocks[BLOCKS];
    uint64_t bytes[BLOCKS];
    const void *lowest;

    for (int i = 0; i < BLOCKS; i++) {
        bytes[i] = (uint64_t)i * 977;
        blocks[i] = take(heap, bytes[i]);
        memset(blocks[i].ptr, i, bytes[i]);
    }
    lowest = blocks[0].ptr;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < BLOCKS; k++) {
            int i = k * 29 % BLOCKS; /* a permutation */

            for (uint64_t b = 0; b < bytes[i]; b++) {
                CHECK(((uint8_t *)blocks[i].ptr)[b] == i);
            }
            give(blocks[i]);
            bytes[i] = (uint64_t)((k + round * 7) % BLOCKS) * 1013;
            blocks[i] = take(heap, bytes[i]);
            memset(blocks[i].ptr, i, bytes[i]);
        }
    }
    for (int k = 0; k < BLOCKS; k++) {
        give(blocks[k * 37 % BLOCKS]);
    }
    CHECK(count_regions(engine) == 1);
    blocks[0] = take(heap, 64 * MIB); /* fits only where all have been joined */
    CHECK(blocks[0].ptr == lowest);
    give(blocks[0]);
    tc_engine_destroy(engine);
}

/* One empty region stays for the next block, the others go. */
static void
test_regions(void)
{
    tc_engine *engine = make_engine();
    tc_heap *heap = tc_engine_heap(engine);
    tc_memory a = take(heap, MIB);
    tc_memory b = take(heap, 64 * MIB);
    tc_memory c = take(heap, 65 * MIB + 1);

    CHECK(count_regions(engine) == 3);
    give(a);
    CHECK(count_regions(engine) == 3);
    give(c);
    CHECK(count_regions(engine) == 2);
    give(b);
    CHECK(count_regions(engine) == 1);
    tc_engine_destroy(engine);
}

/* Memory costs what was used, not what a region could hold. */
static void
test_presence(void)
{
    tc_engine *engine = make_engine();
    tc_memory a = take(tc_engine_heap(engine), 3 * MIB);
    const tc_page *page = tc_engine_page(engine);
    struct stat info;

    CHECK(fstat(page->regions[0].fd, &info) == 0);
    CHECK((uint64_t)info.st_blocks * 512 == 3 * MIB);
    give(a);
    tc_engine_destroy(engine);
}

/* A block outlives its engine, and nothing is left when it goes. */
static void
test_engine_ends_first(void)
{
    tc_engine *engine = make_engine();
    tc_memory a = take(tc_engine_heap(engine), MIB);

    tc_engine_destroy(engine);
    memset(a.ptr, 1, MIB);
    give(a); /* the sanitizer sees a leak or a use after free */
}

/* `body` in a child process, which has to end with 0. */
static void
in_child(void (*body)(void *ctx), void *ctx)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        body(ctx);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

typedef struct shared {
    tc_engine *engine;
    tc_memory memory;
    tc_heap_place place;
    const tc_page *page; /* mapped before the fork, as a peer has it */
} shared;

/* From now on system call `number` fails with `code` in this process, where its third
 * argument is `third` (any, if negative). */
static void
fail_syscall(long number, int third, int code)
{
    struct sock_filter code_of[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, third < 0 ? 1 : 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 third < 0 ? offsetof(struct seccomp_data, nr)
                           : offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                 third < 0 ? (uint32_t)number : (uint32_t)third, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code_of) / sizeof(*code_of),
                                 .filter = code_of};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void
set_limit(int resource, rlim_t value)
{
    struct rlimit limit;

    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = value;
    CHECK(setrlimit(resource, &limit) == 0);
}

static void
expect_no_memory(tc_heap *heap, const char *words)
{
    tc_memory memory;
    tc_error err;

    CHECK(tc_heap_alloc(heap, 70000001, &memory, &err) == TC_ERR_NO_MEMORY);
    CHECK(err.status == TC_ERR_NO_MEMORY);
    if (strstr(err.message, words) == NULL) {
        fprintf(stderr, "'%s' is not in '%s'\n", words, err.message);
        CHECK(false);
    }
}

static void
lack_of_memory(void *ctx)
{
    tc_engine *engine = make_engine();

    (void)ctx;
    fail_syscall(SYS_madvise, POPULATE_WRITE, EFAULT);
    expect_no_memory(tc_engine_heap(engine), "70000640 bytes");
    CHECK(count_regions(engine) == 0); /* what could not be filled is given back */
}

static void
lack_of_address_space(void *ctx)
{
    tc_engine *engine = make_engine();

    (void)ctx;
    fail_syscall(SYS_mmap, -1, ENOMEM);
    expect_no_memory(tc_engine_heap(engine), "70000640 bytes");
    CHECK(count_regions(engine) == 0);
}

static void
file_size_limit(void *ctx)
{
    tc_engine *engine = make_engine();

    (void)ctx;
    set_limit(RLIMIT_FSIZE, 65 * MIB);
    expect_no_memory(tc_engine_heap(engine), "ulimit -f");
    give(take(tc_engine_heap(engine), MIB));
}

static void
old_kernel(void *ctx)
{
    tc_engine *engine = make_engine();
    struct stat info;
    tc_memory a;

    (void)ctx;
    fail_syscall(SYS_madvise, POPULATE_WRITE, EINVAL);
    a = take(tc_engine_heap(engine), 3 * MIB);
    CHECK(fstat(tc_engine_page(engine)->regions[0].fd, &info) == 0);
    CHECK((uint64_t)info.st_blocks * 512 == 3 * MIB);
    give(a);
    tc_engine_destroy(engine);
}

static void
more_than_any_memory(void *ctx)
{
    tc_engine *engine = make_engine();
    tc_memory memory;
    tc_error err;

    (void)ctx;
    CHECK(tc_heap_alloc(tc_engine_heap(engine), UINT64_MAX, &memory, &err) ==
          TC_ERR_NO_MEMORY);
    CHECK(strstr(err.message, "18446744073709551615") != NULL);
    tc_engine_destroy(engine);
}

static void
in_fork(void *ctx)
{
    shared *s = ctx;
    tc_memory memory;
    tc_error err;

    CHECK(tc_heap_alloc(tc_engine_heap(s->engine), 1, &memory, &err) == TC_ERR_FORKED);
    CHECK(((uint8_t *)s->memory.ptr)[MIB] == 7);
    give(s->memory);
}

/* A child reads its parent's memory; what it frees stays. */
static void
test_fork(void)
{
    shared s = {.engine = make_engine()};
    tc_heap *heap = tc_engine_heap(s.engine);

    s.memory = take(heap, 2 * MIB);
    memset(s.memory.ptr, 7, 2 * MIB);
    in_child(in_fork, &s);
    CHECK(((uint8_t *)s.memory.ptr)[MIB] == 7);
    give(s.memory);
    tc_engine_destroy(s.engine);
}

static const uint8_t *
see(tc_heap_view *view, tc_heap_place place, uint64_t bytes)
{
    const void *ptr = NULL;
    tc_error err;

    if (tc_heap_view_find(view, place, bytes, &ptr, &err) != TC_OK) {
        fprintf(stderr, "%s\n", err.message);
        CHECK(false);
    }
    return ptr;
}

static void
expect_refusal(tc_heap_view *view, tc_heap_place place, uint64_t bytes)
{
    const void *ptr;
    tc_error err;

    CHECK(tc_heap_view_find(view, place, bytes, &ptr, &err) < 0);
}

static void
look(void *ctx)
{
    const shared *s = ctx;
    tc_heap_view *view;
    tc_error err;
    const uint8_t *seen;

    CHECK(tc_heap_view_create(s->page, &view, &err) == TC_OK);
    seen = see(view, s->place, MIB);
    CHECK(seen != s->memory.ptr && seen[0] == 3 && seen[MIB - 1] == 3);
    CHECK(see(view, s->place, MIB) == seen); /* not mapped twice */
    seen = see(view, (tc_heap_place){s->place.region, s->place.offset + 5}, MIB - 5);
    CHECK(seen[0] == 3);
    /* What a peer says is not believed. */
    expect_refusal(view, s->place, 64 * MIB + 1);
    expect_refusal(view, (tc_heap_place){s->place.region, UINT64_MAX - 4}, 8);
    expect_refusal(view, (tc_heap_place){0, 0}, 1);
    expect_refusal(view, (tc_heap_place){TC_HEAP_REGIONS + 1, 0}, 1);
    expect_refusal(view, (tc_heap_place){s->place.region + 1, 0}, 1);
    tc_heap_view_destroy(view);
}

static void
look_at_another_file(void *ctx)
{
    shared *s = ctx;
    tc_heap_view *view;
    tc_error err;

    CHECK(tc_heap_view_create(s->page, &view, &err) == TC_OK);
    expect_refusal(view, s->place, MIB);
    tc_heap_view_destroy(view);
}

static void
look_without_permission(void *ctx)
{
    fail_syscall(SYS_openat, -1, EACCES);
    look_at_another_file(ctx);
}

/* Another process maps a region by what the page says of it, and nothing else. */
static void
test_peer(void)
{
    tc_engine *engine = make_engine();
    shared s = {.engine = engine};
    tc_heap *heap = tc_engine_heap(engine);
    tc_page *page;
    tc_error err;
    tc_memory first = take(heap, 100);
    int other = memfd_create("other", MFD_ALLOW_SEALING);
    int copy;

    s.memory = take(heap, MIB);
    memset(s.memory.ptr, 3, MIB);
    s.place = tc_heap_locate(heap, s.memory.ptr, MIB);
    CHECK(s.place.region == 1 && s.place.offset == 128);
    CHECK(tc_heap_locate(heap, s.memory.ptr, 64 * MIB).region == 0);
    CHECK(tc_heap_locate(heap, &s, sizeof(s)).region == 0);
    CHECK(tc_page_map(tc_engine_page_fd(engine), &page, &err) == TC_OK);
    CHECK(madvise(page, sizeof(*page), MADV_DOFORK) == 0);
    s.page = page;
    in_child(look, &s);
    in_child(look_without_permission, &s);
    /* The number of the descriptor leads to another file by now. */
    copy = dup(page->regions[0].fd);
    CHECK(ftruncate(other, 64 * (off_t)MIB) == 0);
    CHECK(fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(dup2(other, page->regions[0].fd) >= 0);
    in_child(look_at_another_file, &s);
    CHECK(dup2(copy, page->regions[0].fd) >= 0);
    in_child(look, &s);
    close(copy);
    close(other);
    give(first);
    give(s.memory);
    tc_page_unmap(page);
    tc_engine_destroy(engine);
}

/* A region that was given back and one in its place are told apart. */
static void
test_view_follows(void)
{
    tc_engine *engine = make_engine();
    tc_heap *heap = tc_engine_heap(engine);
    tc_heap_view *view;
    tc_error err;
    tc_heap_place place;
    tc_memory a = take(heap, MIB);
    tc_memory b = take(heap, 64 * MIB);

    CHECK(tc_heap_view_create(tc_engine_page(engine), &view, &err) == TC_OK);
    memset(b.ptr, 1, MIB);
    place = tc_heap_locate(heap, b.ptr, 64 * MIB);
    CHECK(place.region == 2 && see(view, place, MIB)[MIB - 1] == 1);
    give(a);
    give(b); /* one of the two regions goes */
    a = take(heap, 66 * MIB);
    b = take(heap, 67 * MIB);
    for (int i = 0; i < 2; i++) {
        tc_memory now = i == 0 ? a : b;

        memset(now.ptr, 5 + i, MIB);
        place = tc_heap_locate(heap, now.ptr, MIB);
        CHECK(see(view, place, MIB)[MIB - 1] == 5 + i);
    }
    give(a);
    give(b);
    tc_engine_destroy(engine);
    tc_heap_view_destroy(view);
}

/* Regions that the table has no room for serve their own process. */
static void
test_full_table(void)
{
    tc_engine *engine = make_engine();
    tc_heap *heap = tc_engine_heap(engine);
    tc_page *page = tc_engine_page(engine);
    tc_memory a;

    for (int i = 0; i < TC_HEAP_REGIONS; i++) {
        page->regions[i].generation = UINT64_MAX;
    }
    a = take(heap, MIB);
    memset(a.ptr, 1, MIB);
    CHECK(tc_heap_locate(heap, a.ptr, MIB).region == 0);
    give(a);
    tc_engine_destroy(engine);
}

int
main(void)
{
    test_blocks();
    test_regions();
    test_presence();
    test_engine_ends_first();
    in_child(lack_of_memory, NULL);
    in_child(lack_of_address_space, NULL);
    in_child(file_size_limit, NULL);
    in_child(old_kernel, NULL);
    in_child(more_than_any_memory, NULL);
    test_fork();
    test_peer();
    test_view_follows();
    test_full_table();
    return 0;
}
