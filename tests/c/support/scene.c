/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenarios for the start-up of a segment. */
#include "support/scene.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"

int32_t
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

scene *
scene_create(int32_t size, int32_t actors)
{
    scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED && actors <= SCENE_ACTORS);
    s->size = size;
    s->actors = actors;
    s->timeout_ns = 30 * TC_NSEC_PER_SEC;
    return s;
}

/* The names of sockets are all that the system could keep of a start-up. */
static void
check_no_trace(scene *s)
{
    FILE *file = fopen("/proc/net/unix", "re");
    tc_wire_shm_address address;
    char line[512];

    CHECK(file != NULL);
    CHECK(tc_wire_shm_address_unpack(s->address, &address, NULL) == TC_OK);
    while (fgets(line, sizeof(line), file) != NULL) {
        CHECK(strstr(line, address.socket) == NULL);
    }
    fclose(file);
}

void
scene_destroy(scene *s)
{
    if (s->open != 0) {
        check_no_trace(s);
    }
    munmap(s, sizeof(*s));
}

void
await_address(scene *s)
{
    while (tc_load_acquire_u32(&s->open) == 0) {
        sched_yield();
    }
}

void
pass_barrier(scene *s, uint32_t number)
{
    tc_fetch_add_seq_cst_u32(&s->arrived, 1);
    while (tc_load_seq_cst_u32(&s->arrived) < (uint32_t)s->size * number) {
        sched_yield();
    }
}

tc_shm_member
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

tc_status
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

void
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

void
take_part(scene *s, int32_t actor)
{
    take_part_as(s, actor, actor, NULL);
}

void
play(scene *s, const act_fn *acts, act_fn otherwise)
{
    pid_t pids[SCENE_ACTORS];

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

int
connect_by_hand(scene *s, tc_wire_shm_address *address_p)
{
    int fd = -1;

    await_address(s);
    CHECK(tc_wire_shm_address_unpack(s->address, address_p, NULL) == TC_OK);
    CHECK(tc_shm_channel_connect(address_p->socket, &fd, NULL) == TC_OK);
    return fd;
}

void
send_hello(int fd, const uint8_t *token, int32_t rank, int32_t size, int page_fd)
{
    tc_wire_hello hello = {.rank = rank, .size = size, .pid = (int32_t)getpid()};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    size_t n;

    memcpy(hello.token, token, sizeof(hello.token));
    n = tc_wire_hello_pack(&hello, bytes);
    CHECK(tc_shm_channel_send(fd, bytes, n, &page_fd, page_fd >= 0, NULL) == TC_OK);
}

void
send_verdict(int fd, tc_status status, int32_t rank, const char *text)
{
    tc_wire_verdict verdict = {.status = status, .rank = rank};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    size_t n;

    snprintf(verdict.text, sizeof(verdict.text), "%s", text);
    n = tc_wire_verdict_pack(&verdict, bytes);
    CHECK(tc_shm_channel_send(fd, bytes, n, NULL, 0, NULL) == TC_OK);
}

tc_status
await_message(int fd, tc_shm_message *message_p)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    for (;;) {
        tc_status status = tc_shm_channel_recv(fd, message_p, NULL);

        if (status != TC_PENDING) {
            return status;
        }
        CHECK(poll(&p, 1, 30000) == 1);
    }
}

void
await_verdict(scene *s, int32_t actor, int fd)
{
    tc_shm_message m;
    tc_wire_verdict verdict;

    CHECK(await_message(fd, &m) == TC_OK);
    CHECK(tc_wire_verdict_unpack(m.bytes, m.size, &verdict, NULL) == TC_OK);
    s->outcomes[actor].status = verdict.status;
    memcpy(s->outcomes[actor].message, verdict.text, sizeof(verdict.text));
    CHECK(await_message(fd, &m) == TC_ERR_PEER_CLOSED);
}

int
make_page(void)
{
    tc_page *page;
    int fd;

    CHECK(tc_page_create(&page, &fd, NULL) == TC_OK);
    tc_page_unmap(page);
    return fd;
}

bool
is_too_late(const outcome *out)
{
    return out->status == TC_ERR_PEER_CLOSED && strstr(out->message, "listens no more");
}

void
check_all(const scene *s, int32_t spared, tc_status status, const char *a,
          const char *b)
{
    for (int32_t r = 0; r < s->size; r++) {
        const outcome *out = &s->outcomes[r];

        if (r != spared && (out->status != status || !strstr(out->message, a) ||
                            !strstr(out->message, b))) {
            fprintf(stderr,
                    "rank %d: status %d: '%s', expected status %d, '%s', '%s'\n", r,
                    out->status, out->message, status, a, b);
            CHECK(false);
        }
    }
}

void
stay_away(scene *s, int32_t actor)
{
    (void)s;
    (void)actor;
}
