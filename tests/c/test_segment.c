/* SPDX-License-Identifier: BSD-3-Clause */
/* The start-up of a shared segment: ranks as threads and as processes, and every way in
 * which one of them can fail the others. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "transport/shm/channel.h"
#include "transport/shm/segment.h"

#define MAX_RANKS 64
#define MAX_ACTORS (MAX_RANKS + 40)

/* How one actor's part ended. */
typedef struct outcome {
    tc_status status;
    char message[508];
    int32_t leaked; /* descriptors */
} outcome;

/* Shared by all actors of a scene, which are processes or threads. Actor r below `size`
 * is rank r unless its act says otherwise. */
typedef struct scene {
    int32_t size;
    int32_t actors;
    uint64_t timeout_ns;
    uint32_t open;    /* the address is there */
    uint32_t arrived; /* ranks at the barrier */
    bool threads;
    char address[TC_SHM_ADDRESS_BYTES];
    outcome outcomes[MAX_ACTORS];
} scene;

typedef void (*act_fn)(scene *s, int32_t actor);

static int32_t
count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int32_t count = 0;

    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static scene *
scene_create(int32_t size, int32_t actors)
{
    scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED && actors <= MAX_ACTORS);
    s->size = size;
    s->actors = actors;
    s->timeout_ns = 30 * TC_NSEC_PER_SEC;
    return s;
}

static void
scene_destroy(scene *s)
{
    munmap(s, sizeof(*s));
}

static void
await_address(scene *s)
{
    while (tc_load_acquire_u32(&s->open) == 0) {
        sched_yield();
    }
}

/* The `number`th barrier of the scene, counted from 1. */
static void
pass_barrier(scene *s, uint32_t number)
{
    tc_fetch_add_seq_cst_u32(&s->arrived, 1);
    while (tc_load_seq_cst_u32(&s->arrived) < (uint32_t)s->size * number) {
        sched_yield();
    }
}

static tc_shm_member
member_of(scene *s, int32_t rank, tc_page *page, int page_fd)
{
    return (tc_shm_member){.rank = rank,
                           .size = s->size,
                           .page = page,
                           .page_fd = page_fd,
                           .name = "main",
                           .deadline_ns =
                               tc_deadline_after(tc_clock_ns(), s->timeout_ns)};
}

static tc_status
start(scene *s, const tc_shm_member *self, tc_shm_segment **segment_p, tc_error *err)
{
    tc_shm_leader *leader;
    tc_status status;

    if (self->rank > 0) {
        await_address(s);
        return tc_shm_member_join(s->address, self, segment_p, err);
    }
    status = tc_shm_leader_open(&leader, s->address, err);
    if (status != TC_OK) {
        return status;
    }
    tc_store_release_u32(&s->open, 1);
    status = tc_shm_leader_serve(leader, self, segment_p, err);
    tc_shm_leader_close(leader);
    return status;
}

/* Writes what only this rank can know, reads the same of all others. */
static void
use_segment(scene *s, tc_shm_segment *segment)
{
    int32_t rank = segment->rank;
    uint64_t any = 0;

    for (uint64_t parity = 0; parity < 2; parity++) {
        memset(tc_shm_segment_exchange(segment, rank, parity), rank + 1,
               segment->layout.exchange_bytes);
    }
    for (int i = 0; i < 16; i++) {
        any |= tc_shm_segment_rank(segment, rank)->affinity[i];
    }
    CHECK(any != 0);
    pass_barrier(s, 1);
    for (int32_t r = 0; r < s->size; r++) {
        const uint8_t *slot = tc_shm_segment_exchange(segment, r, 1);

        CHECK(slot[0] == r + 1);
        CHECK(slot[segment->layout.exchange_bytes - 1] == r + 1);
        CHECK(segment->pages[r]->magic == TC_PAGE_MAGIC);
        CHECK((segment->pages[r]->pid == (int32_t)getpid()) == (s->threads || r == rank));
        CHECK(r == rank || segment->pages[r]->id != segment->pages[rank]->id);
    }
    CHECK(memcmp(tc_shm_segment_rank(segment, 0)->affinity,
                 tc_shm_segment_rank(segment, s->size - 1)->affinity, 128) == 0);
    pass_barrier(s, 2);
}

/* What most actors do. Where the status is TC_OK, all of them use the segment. */
static void
take_part_as(scene *s, int32_t actor, int32_t rank, bool (*interrupted)(void *))
{
    outcome *out = &s->outcomes[actor];
    int32_t before = s->threads ? 0 : count_fds();
    tc_shm_segment *segment = NULL;
    tc_error err = {0};
    tc_page *page;
    int page_fd;
    tc_shm_member self;

    CHECK(tc_page_create(&page, &page_fd, &err) == TC_OK);
    self = member_of(s, rank, page, page_fd);
    self.interrupted = interrupted;
    out->status = start(s, &self, &segment, &err);
    CHECK((out->status == TC_OK) == (segment != NULL));
    CHECK(out->status == TC_OK || out->status == err.status);
    memcpy(out->message, err.message, sizeof(out->message));
    tc_shm_segment_close(segment);
    tc_page_unmap(page);
    close(page_fd);
    out->leaked = s->threads ? 0 : count_fds() - before;
}

static void
take_part(scene *s, int32_t actor)
{
    take_part_as(s, actor, actor, NULL);
}

static void
take_part_and_use(scene *s, int32_t actor)
{
    outcome *out = &s->outcomes[actor];
    tc_shm_segment *segment = NULL;
    tc_error err = {0};
    tc_page *page;
    int page_fd;
    tc_shm_member self;

    CHECK(tc_page_create(&page, &page_fd, &err) == TC_OK);
    self = member_of(s, actor, page, page_fd);
    out->status = start(s, &self, &segment, &err);
    if (out->status != TC_OK) {
        fprintf(stderr, "rank %d: %s\n", actor, err.message);
    }
    CHECK(out->status == TC_OK);
    use_segment(s, segment);
    tc_shm_segment_close(segment);
    tc_page_unmap(page);
    close(page_fd);
}

/* Runs act `acts[i]` (or the default one) as process i and waits for all. */
static void
play(scene *s, const act_fn *acts, act_fn otherwise)
{
    pid_t pids[MAX_ACTORS];

    for (int32_t i = 0; i < s->actors; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            act_fn act = acts != NULL && acts[i] != NULL ? acts[i] : otherwise;

            alarm(60);
            act(s, i);
            exit(0);
        }
    }
    for (int32_t i = 0; i < s->actors; i++) {
        int how;

        CHECK(waitpid(pids[i], &how, 0) == pids[i]);
        if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) {
            continue; /* as the act wanted */
        }
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        CHECK(s->outcomes[i].leaked == 0);
    }
}

static void
test_processes(int32_t size)
{
    scene *s = scene_create(size, size);

    play(s, NULL, take_part_and_use);
    scene_destroy(s);
}

typedef struct thread_arg {
    scene *s;
    int32_t actor;
} thread_arg;

static void *
run_thread(void *arg)
{
    thread_arg *a = arg;

    take_part_and_use(a->s, a->actor);
    return NULL;
}

static void
test_threads(int32_t size)
{
    scene *s = scene_create(size, size);
    pthread_t threads[MAX_RANKS];
    thread_arg args[MAX_RANKS];
    int32_t before = count_fds();

    s->threads = true;
    for (int32_t r = 0; r < size; r++) {
        args[r] = (thread_arg){s, r};
        CHECK(pthread_create(&threads[r], NULL, run_thread, &args[r]) == 0);
    }
    for (int32_t r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
    }
    CHECK(count_fds() == before);
    scene_destroy(s);
}

int
main(void)
{
    alarm(110);
    (void)take_part;
    test_processes(1);
    test_processes(2);
    test_processes(3);
    test_processes(8);
    test_processes(64);
    test_threads(1);
    test_threads(2);
    test_threads(3);
    test_threads(8);
    test_threads(64);
    return 0;
}
