/* SPDX-License-Identifier: BSD-3-Clause */
/* The start-up of a shared segment under limits: descriptors, address space, memory,
 * other hosts, signals, forks, and a leader that cannot be trusted. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/scene.h"
#include "transport/shm/identity.h"

#define POPULATE_WRITE 23

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

/* `actor` of `size` ranks does `act`: all fail with `status` and the words. */
static void
check_failure(int32_t size, int32_t actor, act_fn act, tc_status status,
              const char *words)
{
    act_fn acts[SCENE_ACTORS] = {0};
    scene *s = scene_create(size, size);

    acts[actor] = act;
    play(s, acts, take_part);
    for (int32_t r = 0; r < size; r++) {
        const outcome *out = &s->outcomes[r];

        if (r > 0 && r != actor && actor == 0 && is_too_late(out)) {
            continue;
        }
        if (out->status != status || !strstr(out->message, words) ||
            (r != actor && strncmp(out->message, "rank ", 5) != 0)) {
            fprintf(stderr, "rank %d: status %d: '%s', expected %d, '%s'\n", r,
                    out->status, out->message, status, words);
            CHECK(false);
        }
    }
    scene_destroy(s);
}

/* Descriptors
 * -------------------------------------------------------------------------- */

/* Leaves room for `count` descriptors. */
static void
leave_fds(int count)
{
    int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);

    CHECK(lowest >= 0);
    close(lowest);
    set_limit(RLIMIT_NOFILE, (rlim_t)(lowest + count));
}

static void
lead_with_few_fds(scene *s, int32_t actor)
{
    leave_fds(6);
    take_part(s, actor);
}

/* Page, socket, listener: not one connection. */
static void
lead_with_no_fd_left(scene *s, int32_t actor)
{
    leave_fds(3);
    take_part(s, actor);
}

static void
join_with_few_fds(scene *s, int32_t actor)
{
    leave_fds(5);
    take_part(s, actor);
}

/* As an ordinary user, whose descriptors on their way are counted. */
static void
start_as_user(scene *s, int32_t actor)
{
    CHECK(geteuid() != 0 || setuid(65534) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0); /* may look at its own fds */
    set_limit(RLIMIT_NOFILE, 64);
    take_part(s, actor);
}

static void
test_descriptors(void)
{
    scene *s = scene_create(24, 24);

    check_failure(8, 0, lead_with_few_fds, TC_ERR_SYSTEM, "Too many open files");
    check_failure(8, 0, lead_with_no_fd_left, TC_ERR_SYSTEM, "Too many open files");
    check_failure(8, 2, join_with_few_fds, TC_ERR_SYSTEM, "Too many open files");
    play(s, NULL, start_as_user);
    check_all(s, -1, TC_OK, "", "");
    scene_destroy(s);
}

/* Memory
 * ------------------------------------------------------------------------------- */

static void
limit_address_space(scene *s, int32_t actor)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages;

    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    set_limit(RLIMIT_AS, (rlim_t)pages * 4096 + (rlim_t)(16 << 20));
    take_part(s, actor);
}

static void
limit_file_size(scene *s, int32_t actor)
{
    set_limit(RLIMIT_FSIZE, 1 << 20);
    take_part(s, actor);
}

static void
have_no_memory(scene *s, int32_t actor)
{
    fail_syscall(SYS_madvise, POPULATE_WRITE, ENOMEM);
    take_part(s, actor);
}

/* What the kernel answers where a store would have been a SIGBUS. */
static void
have_no_page(scene *s, int32_t actor)
{
    fail_syscall(SYS_madvise, POPULATE_WRITE, EFAULT);
    take_part(s, actor);
}

static void
cannot_grow(scene *s, int32_t actor)
{
    fail_syscall(SYS_ftruncate, -1, ENOMEM);
    take_part(s, actor);
}

static void
test_memory(void)
{
    check_failure(16, 2, limit_address_space, TC_ERR_NO_MEMORY, "address space of the");
    check_failure(16, 0, limit_address_space, TC_ERR_NO_MEMORY, "address space of the");
    check_failure(4, 0, limit_file_size, TC_ERR_NO_MEMORY,
                  "file size limit of 1.0 MiB");
    check_failure(4, 0, have_no_memory, TC_ERR_NO_MEMORY, "Cannot allocate memory");
    check_failure(4, 3, have_no_memory, TC_ERR_NO_MEMORY, "Cannot allocate memory");
    check_failure(4, 3, have_no_page, TC_ERR_NO_MEMORY, "memory of the shared segment");
    check_failure(4, 0, cannot_grow, TC_ERR_NO_MEMORY, "ftruncate");
}

/* A rank of size 1, which needs no scene. */
static tc_shm_segment *
make_alone(void)
{
    static tc_page *page; /* borrowed by the segment */
    static int page_fd;
    tc_shm_segment *segment = NULL;
    tc_shm_member self = {.size = 1, .name = "alone", .deadline_ns = TC_DEADLINE_NONE};

    if (page == NULL) {
        CHECK(tc_page_create(&page, &page_fd, NULL) == TC_OK);
    }
    self.page = page;
    self.page_fd = page_fd;
    CHECK(tc_shm_leader_serve(NULL, &self, &segment, NULL) == TC_OK);
    return segment;
}

/* A page that fallocate has reserved is not "in core" before its first use. */
static int64_t
count_pages(const tc_shm_segment *segment)
{
    struct stat st;

    CHECK(fstat(segment->fd, &st) == 0);
    return st.st_blocks / 8;
}

static bool
is_present(const tc_shm_segment *segment, uint64_t offset)
{
    unsigned char present;

    CHECK(mincore(segment->base + offset, 1, &present) == 0);
    return (present & 1) != 0;
}

static void
check_ranges(tc_shm_segment *segment)
{
    uint64_t bytes = segment->layout.bytes;
    tc_error err;

    CHECK(tc_shm_segment_populate(segment, bytes, 0, &err) == TC_OK);
    CHECK(tc_shm_segment_populate(segment, bytes - 1, 1, &err) == TC_OK);
    CHECK(tc_shm_segment_populate(segment, bytes, 1, &err) == TC_ERR_INTERNAL);
    CHECK(tc_shm_segment_populate(segment, 1, bytes, &err) == TC_ERR_INTERNAL);
    CHECK(tc_shm_segment_populate(segment, UINT64_MAX, 2, &err) == TC_ERR_INTERNAL);
}

static void
populate(scene *s, int32_t actor)
{
    tc_shm_segment *segment = make_alone();
    uint64_t lane;
    tc_error err;

    (void)s;
    (void)actor;
    CHECK(segment->fd == -1);
    lane = tc_shm_layout_lane(&segment->layout, TC_SHM_LANE_BULK, 0, 0);
    CHECK(is_present(segment, segment->layout.state_offset));
    CHECK(is_present(segment, segment->layout.rank_offset));
    CHECK(is_present(segment, segment->layout.exchange_offset));
    CHECK(!is_present(segment, lane) && !is_present(segment, lane + 8192));
    /* not aligned, and one byte into the third page */
    CHECK(tc_shm_segment_populate(segment, lane + 100, 8192 - 99, &err) == TC_OK);
    CHECK(is_present(segment, lane) && is_present(segment, lane + 8192));
    CHECK(!is_present(segment, lane + 12288));
    check_ranges(segment);
    fail_syscall(SYS_madvise, POPULATE_WRITE, ENOMEM);
    CHECK(tc_shm_segment_populate(segment, 0, 65536, &err) == TC_ERR_NO_MEMORY);
    CHECK(strstr(err.message, "0.1 MiB") && strstr(err.message, "errno 12"));
    tc_shm_segment_close(segment);
}

/* A kernel that does not know the advice. */
static void
populate_by_fallocate(scene *s, int32_t actor)
{
    tc_shm_segment *segment;
    tc_error err;
    int32_t before;
    int64_t pages;

    (void)s;
    (void)actor;
    tc_shm_segment_close(make_alone());
    fail_syscall(SYS_madvise, POPULATE_WRITE, EINVAL);
    before = count_fds();
    segment = make_alone();
    CHECK(segment->fd >= 0);
    pages = count_pages(segment);
    CHECK(pages > 0);
    CHECK(tc_shm_segment_populate(segment, segment->layout.bytes - 9000, 8192, &err) ==
          TC_OK);
    CHECK(count_pages(segment) == pages + 3);
    check_ranges(segment);
    fail_syscall(SYS_fallocate, -1, ENOSPC);
    CHECK(tc_shm_segment_populate(segment, 0, 65536, &err) == TC_ERR_NO_MEMORY);
    tc_shm_segment_close(segment);
    CHECK(count_fds() == before);
}

static void
test_populate(void)
{
    act_fn acts[2] = {populate, populate_by_fallocate};
    scene *s = scene_create(1, 2);

    play(s, acts, NULL);
    scene_destroy(s);
}

/* Hosts
 * -------------------------------------------------------------------------------- */

static void
be_on_host(scene *s, int32_t actor)
{
    setenv("TORCHCOMM_HOST_ID", actor == 0 ? "node a" : "node b", 1);
    take_part(s, actor);
}

/* Joins by an address that the test has changed. */
static void
join_by(scene *s, int32_t actor, const char *address)
{
    outcome *out = &s->outcomes[actor];
    tc_shm_segment *segment;
    tc_shm_member self = member_of(s, actor, NULL, -1);
    tc_error err = {0};

    out->status = tc_shm_member_join(address, &self, &segment, &err);
    memcpy(out->message, err.message, sizeof(out->message));
}

static void
see_another_boot(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    char text[TC_WIRE_ADDRESS_BYTES];

    await_address(s);
    CHECK(tc_wire_shm_address_unpack(s->address, &address, NULL) == TC_OK);
    CHECK(address.boot_id[0] != '\0' && address.net_ns != 0);
    memcpy(address.boot_id, "00000000", 8);
    tc_wire_shm_address_pack(&address, text);
    join_by(s, actor, text);
}

static void
enter_another_net(scene *s, int32_t actor)
{
    await_address(s);
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        s->outcomes[actor].status = TC_PENDING;
        return;
    }
    join_by(s, actor, s->address);
}

static void
test_hosts(void)
{
    act_fn acts[2] = {be_on_host, be_on_host};
    scene *s = scene_create(2, 2);

    s->timeout_ns = 200 * TC_NSEC_PER_MSEC;
    play(s, acts, take_part);
    CHECK(s->outcomes[1].status == TC_ERR_UNSUPPORTED);
    CHECK(strstr(s->outcomes[1].message, "rank 1 is on host 'node b' (boot id "));
    CHECK(strstr(s->outcomes[1].message, "rank 0 on host 'node a' (boot id "));
    CHECK(strstr(s->outcomes[0].message, "rank 1 did not join"));

    s->open = 0;
    play(s, (act_fn[]){take_part, see_another_boot}, NULL);
    CHECK(s->outcomes[1].status == TC_ERR_UNSUPPORTED);
    CHECK(strstr(s->outcomes[1].message, "boot id 00000000-"));
    CHECK(strstr(s->outcomes[1].message, "are not built yet"));

    s->open = 0;
    play(s, (act_fn[]){take_part, enter_another_net}, NULL);
    if (s->outcomes[1].status == TC_PENDING) {
        fprintf(stderr, "not tested: this user may not make network namespaces\n");
    } else {
        CHECK(s->outcomes[1].status == TC_ERR_UNSUPPORTED);
        CHECK(strstr(s->outcomes[1].message, "different network namespaces ("));
    }
    scene_destroy(s);
}

static void
test_addresses(void)
{
    scene *s = scene_create(2, 0);
    tc_shm_leader *leader;

    join_by(s, 1, "tcp 10.0.0.1:99");
    CHECK(s->outcomes[1].status == TC_ERR_MISMATCH);
    CHECK(tc_shm_leader_open(&leader, s->address, NULL) == TC_OK);
    tc_shm_leader_close(leader);
    join_by(s, 1, s->address);
    CHECK(is_too_late(&s->outcomes[1]));
    setenv("TORCHCOMM_HOST_ID", "a\nb", 1);
    CHECK(tc_shm_leader_open(&leader, s->address, NULL) == TC_ERR_INVALID_ARGUMENT);
    unsetenv("TORCHCOMM_HOST_ID");
    scene_destroy(s);
}

/* Interrupts, signals, forks
 * ----------------------------------------------------------- */

static bool
always(void *ctx)
{
    (void)ctx;
    return true;
}

static void
be_interrupted(scene *s, int32_t actor)
{
    take_part_as(s, actor, actor, always);
}

static void
test_interrupts(void)
{
    for (int32_t who = 0; who < 2; who++) {
        act_fn acts[3] = {[2] = stay_away};
        scene *s = scene_create(3, 3);

        acts[who] = be_interrupted;
        play(s, acts, take_part);
        CHECK(s->outcomes[who].status == TC_INTERRUPTED);
        CHECK(strstr(s->outcomes[who].message, "'main' was interrupted"));
        if (!is_too_late(&s->outcomes[1 - who])) {
            CHECK(s->outcomes[1 - who].status == TC_ERR_ABORTED);
            CHECK(strstr(s->outcomes[1 - who].message, "'main' was interrupted"));
        }
        scene_destroy(s);
    }
}

static void
ignore(int signal_number)
{
    (void)signal_number;
}

/* Every wait is interrupted, again and again. */
static void
start_under_signals(scene *s, int32_t actor)
{
    struct sigaction action = {.sa_handler = ignore}; /* no SA_RESTART */
    struct itimerval every = {.it_interval.tv_usec = 2000, .it_value.tv_usec = 2000};

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    take_part(s, actor);
    every.it_value.tv_usec = 0;
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void
test_signals(void)
{
    scene *s = scene_create(16, 16);

    play(s, NULL, start_under_signals);
    check_all(s, -1, TC_OK, "", "");
    scene_destroy(s);
}

static void
test_fork(void)
{
    tc_shm_segment *segment = make_alone();
    int how;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(msync(segment->base, 4096, MS_ASYNC) != 0 && errno == ENOMEM);
        tc_shm_segment_close(segment);
        exit(0);
    }
    CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    tc_shm_segment_rank(segment, 0)->finalized = 1;
    tc_shm_segment_close(segment);
}

/* A leader that cannot be trusted
 * ------------------------------------------------------- */

typedef struct offer {
    int32_t size; /* in the welcome */
    int64_t bytes; /* there, and of the file; negative: more than is due */
    int seals;
    int32_t fds; /* with the welcome */
    int32_t first; /* of the pages */
    int32_t pages;
    const char *words; /* of the member's refusal */
} offer;

#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static const offer offers[] = {
    {2, 0, F_SEAL_SHRINK | F_SEAL_GROW, 1, 0, 2, "is not sealed"},
    {2, -4096, ALL_SEALS, 1, 0, 2, "lays the segment out in"},
    {3, 0, ALL_SEALS, 1, 0, 2, "rank 0 has size 3"},
    {2, 0, ALL_SEALS, 0, 0, 2, "sent 0 descriptors"},
    {2, 0, ALL_SEALS, 1, 1, 1, "from rank 1 on, expected from rank 0"},
    {2, 0, ALL_SEALS, 1, 0, 3, "sent 3 pages"},
    {2, 0, ALL_SEALS, 1, 0, 1, ""}, /* the rest never comes: see lead_badly */
};

enum { OFFERS = sizeof(offers) / sizeof(*offers) };

static int
make_file(const offer *o, uint64_t bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, o->seals) == 0);
    return fd;
}

static void
send_offer(int fd, const offer *o)
{
    tc_shm_layout layout;
    tc_wire_welcome welcome = {.size = o->size};
    tc_wire_pages pages = {.first = o->first, .count = o->pages};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    int fds[3] = {make_page(), make_page(), make_page()};
    int file;

    tc_shm_layout_compute(2, &layout);
    welcome.bytes = layout.bytes - (uint64_t)o->bytes;
    file = make_file(o, welcome.bytes);
    tc_shm_channel_send(fd, bytes, tc_wire_welcome_pack(&welcome, bytes), &file, o->fds,
                        NULL);
    tc_shm_channel_send(fd, bytes, tc_wire_pages_pack(&pages, bytes), fds, o->pages,
                        NULL);
    close(file);
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
}

/* Rank 0: the message of the member's verdict is its outcome. */
static void
lead_badly(scene *s, int32_t actor)
{
    const offer *o = &offers[s->arrived];
    tc_wire_shm_address address = {.socket = "0123456789abcdef"};
    tc_shm_message m;
    struct pollfd p = {.events = POLLIN};
    int fd;

    CHECK(tc_shm_identity_read(&address, NULL) == TC_OK);
    snprintf(address.socket, sizeof(address.socket), "%x%llx", (unsigned)getpid(),
             (unsigned long long)tc_clock_ns() & 0xffffffff);
    CHECK(tc_shm_channel_listen(address.socket, &p.fd, NULL) == TC_OK);
    tc_wire_shm_address_pack(&address, s->address);
    tc_store_release_u32(&s->open, 1);
    CHECK(poll(&p, 1, 30000) == 1);
    fd = accept4(p.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(fd >= 0 && await_message(fd, &m) == TC_OK && m.fd_count == 1);
    tc_shm_message_close_fds(&m);
    send_offer(fd, o);
    if (o->words[0] == '\0') {
        kill(getpid(), SIGKILL);
    }
    await_verdict(s, actor, fd);
    close(fd);
    close(p.fd);
}

static void
test_bad_leaders(void)
{
    for (uint32_t i = 0; i < OFFERS; i++) {
        scene *s = scene_create(2, 2);

        s->arrived = i;
        play(s, (act_fn[]){lead_badly, take_part}, NULL);
        if (offers[i].words[0] == '\0') {
            CHECK(s->outcomes[1].status == TC_ERR_PEER_DIED);
            CHECK(strstr(s->outcomes[1].message, "rank 0 ended during the start-up"));
        } else {
            check_all(s, -1, TC_ERR_MISMATCH, offers[i].words, "");
        }
        scene_destroy(s);
    }
}

int
main(void)
{
    alarm(110);
    test_descriptors();
    test_memory();
    test_populate();
    test_hosts();
    test_addresses();
    test_interrupts();
    test_signals();
    test_fork();
    test_bad_leaders();
    return 0;
}
