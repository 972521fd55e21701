/* SPDX-License-Identifier: BSD-3-Clause */
/* The start-up of a shared segment: ranks as threads and as processes, ranks that die
 * or stay away, strangers, and ranks that disagree. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/scene.h"

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
        CHECK((segment->pages[r]->pid == (int32_t)getpid()) ==
              (s->threads || r == rank));
        CHECK(r == rank || segment->pages[r]->id != segment->pages[rank]->id);
    }
    CHECK(memcmp(tc_shm_segment_rank(segment, 0)->affinity,
                 tc_shm_segment_rank(segment, s->size - 1)->affinity, 128) == 0);
    pass_barrier(s, 2);
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
    pthread_t threads[SCENE_RANKS];
    thread_arg args[SCENE_RANKS];
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

/* Messages a member exchanges before it dies. */
static void
die_after(scene *s, int32_t rank, int32_t messages)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);
    tc_shm_message m;

    if (messages > 0) {
        send_hello(fd, address.token, rank, s->size, make_page());
    }
    for (int32_t i = 1; i < messages && i < 3; i++) {
        CHECK(await_message(fd, &m) == TC_OK);
    }
    if (messages > 3) {
        send_verdict(fd, TC_OK, rank, "");
    }
    kill(getpid(), SIGKILL);
}

static void
die_connected(scene *s, int32_t actor)
{
    die_after(s, actor, 0);
}

static void
die_joined(scene *s, int32_t actor)
{
    die_after(s, actor, 1);
}

static void
die_welcomed(scene *s, int32_t actor)
{
    die_after(s, actor, 2);
}

static void
die_with_pages(scene *s, int32_t actor)
{
    die_after(s, actor, 3);
}

static void
die_ready(scene *s, int32_t actor)
{
    die_after(s, actor, 4);
}

static void
test_deaths(void)
{
    static const act_fn late[] = {die_welcomed, die_with_pages};
    act_fn acts[4] = {[2] = die_joined};
    scene *s = scene_create(4, 4);

    play(s, acts, take_part);
    for (int32_t r = 0; r < 4; r++) {
        if (r != 2 && (r == 0 || !is_too_late(&s->outcomes[r]))) {
            CHECK(s->outcomes[r].status == TC_ERR_PEER_DIED);
            CHECK(strstr(s->outcomes[r].message, "rank 2 (pid "));
        }
    }
    scene_destroy(s);
    for (size_t i = 0; i < sizeof(late) / sizeof(*late); i++) {
        s = scene_create(4, 4);
        acts[2] = late[i];
        play(s, acts, take_part);
        check_all(s, 2, TC_ERR_PEER_DIED, "rank 2 (pid ", "communicator 'main'");
        scene_destroy(s);
    }
    s = scene_create(4, 4);
    acts[2] = die_ready;
    play(s, acts, take_part);
    /* before or after the leader has heard the last of the others: all see the same */
    if (s->outcomes[0].status == TC_OK) {
        check_all(s, 2, TC_OK, "", "");
    } else {
        check_all(s, 2, TC_ERR_PEER_DIED, "rank 2 (pid ", "communicator 'main'");
    }
    scene_destroy(s);
}

static void
test_missing(void)
{
    act_fn acts[6] = {[2] = stay_away, [5] = die_connected};
    scene *s = scene_create(6, 6);

    s->timeout_ns = TC_NSEC_PER_SEC;
    play(s, acts, take_part);
    for (int32_t r = 0; r < 6; r++) {
        if (r != 2 && r != 5) {
            CHECK(s->outcomes[r].status == TC_ERR_TIMEOUT);
            CHECK(strcmp(s->outcomes[r].message,
                         "ranks 2, 5 did not join communicator 'main' within 1.0 s") ==
                  0);
        }
    }
    scene_destroy(s);
}

static void
test_most_missing(void)
{
    act_fn acts[2] = {0};
    scene *s = scene_create(1000, 2);

    s->timeout_ns = TC_NSEC_PER_SEC;
    play(s, acts, take_part);
    CHECK(s->outcomes[0].status == TC_ERR_TIMEOUT);
    CHECK(strstr(s->outcomes[0].message, "ranks 2, 3, 4,"));
    CHECK(strstr(s->outcomes[0].message, " more did not join communicator 'main'"));
    CHECK(strcmp(s->outcomes[0].message, s->outcomes[1].message) == 0);
    scene_destroy(s);
}

/* A member that stops while it maps: slow, not dead, so the deadline decides. */
static void
stall(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);
    tc_shm_message m;

    send_hello(fd, address.token, actor, s->size, make_page());
    while (await_message(fd, &m) == TC_OK) {
        tc_shm_message_close_fds(&m);
    }
}

static void
test_stalled(void)
{
    act_fn acts[3] = {[1] = stall};
    scene *s = scene_create(3, 3);

    s->timeout_ns = TC_NSEC_PER_SEC;
    play(s, acts, take_part);
    check_all(s, 1, TC_ERR_TIMEOUT, "rank 1 did not finish the start-up", "'main'");
    scene_destroy(s);
}

/* Strangers ---------------------------------------------------------------------------
 */

static void
guess_token(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);

    address.token[15] ^= 1;
    send_hello(fd, address.token, 1, s->size, make_page());
    await_verdict(s, actor, fd);
    CHECK(s->outcomes[actor].status == TC_ERR_MISMATCH);
    CHECK(strstr(s->outcomes[actor].message, "another token"));
    tc_fetch_add_seq_cst_u32(&s->arrived, 1);
}

static void
talk_nonsense(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);
    char noise[2000];
    int fds[3] = {0, 0, 0};

    memset(noise, actor, sizeof(noise));
    CHECK(tc_shm_channel_send(fd, noise, sizeof(noise), fds, 3, NULL) == TC_OK);
    await_verdict(s, actor, fd);
    CHECK(strstr(s->outcomes[actor].message, "not a start-up message"));
    tc_fetch_add_seq_cst_u32(&s->arrived, 1);
}

static void
say_nothing(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);

    tc_fetch_add_seq_cst_u32(&s->arrived, 1);
    await_verdict(s, actor, fd);
    CHECK(s->outcomes[actor].status == TC_ERR_MISMATCH);
}

static void
come_after_strangers(scene *s, int32_t actor)
{
    while (tc_load_seq_cst_u32(&s->arrived) < (uint32_t)(s->actors - s->size)) {
        sched_yield();
    }
    take_part(s, actor);
}

static void
test_strangers(void)
{
    act_fn acts[27] = {
        [1] = come_after_strangers, [3] = guess_token, [4] = talk_nonsense};
    scene *s = scene_create(3, 5);

    play(s, acts, take_part);
    check_all(s, -1, TC_OK, "", "");
    scene_destroy(s);

    /* more silent ones than have room */
    for (int32_t i = 3; i < 27; i++) {
        acts[i] = say_nothing;
    }
    acts[1] = NULL;
    acts[3] = guess_token;
    acts[2] = come_after_strangers;
    s = scene_create(3, 27);
    play(s, acts, take_part);
    check_all(s, -1, TC_OK, "", "");
    scene_destroy(s);
}

/* Ranks that disagree
 * ------------------------------------------------------------------ */

static void
be_rank_1(scene *s, int32_t actor)
{
    take_part_as(s, actor, 1, NULL);
}

static void
be_rank_0(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);

    send_hello(fd, address.token, 0, s->size, make_page());
    await_verdict(s, actor, fd);
}

static void
have_another_size(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);

    send_hello(fd, address.token, actor, 7, make_page());
    await_verdict(s, actor, fd);
}

static void
send_no_page(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);

    send_hello(fd, address.token, actor, s->size, -1);
    await_verdict(s, actor, fd);
}

static void
send_bad_page(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);
    int page_fd = memfd_create("test", MFD_CLOEXEC);

    CHECK(page_fd >= 0 && ftruncate(page_fd, sizeof(tc_page)) == 0);
    send_hello(fd, address.token, actor, s->size, page_fd);
    await_verdict(s, actor, fd);
}

static void
be_ready_at_once(scene *s, int32_t actor)
{
    tc_wire_shm_address address;
    int fd = connect_by_hand(s, &address);

    send_hello(fd, address.token, actor, s->size, make_page());
    send_verdict(fd, TC_OK, actor, "");
    await_verdict(s, actor, fd);
}

/* Actor 2 of 3 ranks does `act`, after which no rank starts. */
static void
check_disagreement(act_fn act, const char *a, const char *b)
{
    act_fn acts[3] = {[2] = act};
    scene *s = scene_create(3, 3);

    play(s, acts, take_part);
    CHECK(s->outcomes[0].status == TC_ERR_MISMATCH ||
          s->outcomes[0].status == TC_ERR_SYSTEM);
    for (int32_t i = 0; i < 3; i++) {
        const outcome *out = &s->outcomes[i];

        if ((i != 1 || !is_too_late(out)) &&
            (!strstr(out->message, a) || !strstr(out->message, b))) {
            fprintf(stderr, "rank %d: '%s', expected '%s' and '%s'\n", i, out->message,
                    a, b);
            CHECK(false);
        }
    }
    scene_destroy(s);
}

static void
test_disagreements(void)
{
    check_disagreement(have_another_size, "has size 7", "rank 0 has size 3");
    check_disagreement(be_rank_0, "two processes say that they are rank 0", "'main'");
    check_disagreement(send_no_page, "rank 2 (pid ", "sent 0 descriptors");
    check_disagreement(send_bad_page, "rank 2's page", "seals");
}

static void
test_ready_too_early(void)
{
    act_fn acts[3] = {[1] = stay_away, [2] = be_ready_at_once};
    scene *s = scene_create(3, 3);

    play(s, acts, take_part);
    check_all(s, 1, TC_ERR_MISMATCH, "rank 2 says it is ready", "before it can be");
    scene_destroy(s);
}

static void
test_duplicate(void)
{
    act_fn acts[3] = {[2] = be_rank_1};
    scene *s = scene_create(3, 3);

    play(s, acts, take_part);
    check_all(s, -1, TC_ERR_MISMATCH, "two processes say that they are rank 1",
              "pids ");
    scene_destroy(s);
}

int
main(void)
{
    static const int32_t sizes[] = {1, 2, 3, 8, SCENE_RANKS};

    alarm(110);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        test_processes(sizes[i]);
        test_threads(sizes[i]);
    }
    test_deaths();
    test_missing();
    test_most_missing();
    test_stalled();
    test_strangers();
    test_disagreements();
    test_ready_too_early();
    test_duplicate();
    return 0;
}
