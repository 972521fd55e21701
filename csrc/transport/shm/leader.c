/* SPDX-License-Identifier: BSD-3-Clause */
/* The leader's side of a segment's start-up: one loop over all connections. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/shm/identity.h"
#include "transport/shm/rendezvous.h"
#include "transport/shm/serving.h"

/* Who is silent for this long makes room when there is none: ours say hello as soon as
 * they are connected. */
#define SILENCE_NS TC_NSEC_PER_SEC

#define RETRY_NS TC_NSEC_PER_MSEC

/* How often the listeners of a group's missing members are looked at. */
#define ABSENCE_NS (200 * TC_NSEC_PER_MSEC)

tc_status
tc_shm_leader_open(tc_shm_leader **leader_p, char address_p[TC_SHM_ADDRESS_BYTES],
                   tc_error *err)
{
    tc_wire_shm_address address = {0};
    tc_shm_leader *leader;
    tc_status status;
    uint64_t name;

    _Static_assert((int)TC_SHM_ADDRESS_BYTES == (int)TC_WIRE_ADDRESS_BYTES, "one size");
    TC_TRY(tc_shm_identity_read(&address, err));
    if (getrandom(&name, sizeof(name), 0) != (ssize_t)sizeof(name) ||
        getrandom(address.token, sizeof(address.token), 0) !=
            (ssize_t)sizeof(address.token)) {
        return tc_error_errno(err, "getrandom");
    }
    snprintf(address.socket, sizeof(address.socket), "%016llx",
             (unsigned long long)name);
    leader = calloc(1, sizeof(*leader));
    if (leader == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "leader of a shared segment");
    }
    memcpy(leader->token, address.token, sizeof(leader->token));
    status = tc_shm_channel_listen(address.socket, &leader->listen_fd, err);
    if (status != TC_OK) {
        goto err_free;
    }
    leader->spare_fd = fcntl(leader->listen_fd, F_DUPFD_CLOEXEC, 0);
    if (leader->spare_fd < 0) {
        status = tc_error_errno(err, "spare descriptor");
        goto err_close;
    }
    tc_wire_shm_address_pack(&address, address_p);
    *leader_p = leader;
    return TC_OK;

err_close:
    close(leader->listen_fd);
err_free:
    free(leader);
    return status;
}

void
tc_shm_leader_close(tc_shm_leader *leader)
{
    if (leader == NULL) {
        return;
    }
    while (leader->early_count > 0) {
        tc_shm_early_drop(leader, 0);
    }
    close(leader->listen_fd);
    if (leader->spare_fd >= 0) {
        close(leader->spare_fd);
    }
    free(leader);
}

static void
say_verdict(int fd, tc_status status, const char *text)
{
    tc_wire_verdict verdict = {.status = status, .rank = 0};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];

    snprintf(verdict.text, sizeof(verdict.text), "%s", text);
    tc_shm_channel_send(fd, bytes, tc_wire_verdict_pack(&verdict, bytes), NULL, 0,
                        NULL);
}

static void
remove_conn(serving *s, int32_t i)
{
    close(s->conns[i].fd);
    s->conns[i] = s->conns[--s->conn_count];
}

/* Turns a connection away that is none of our ranks; the others go on. */
static void
refuse(serving *s, int32_t i, const tc_error *why)
{
    TC_LOG(SHM, WARN, "communicator '%s': refused a connection: %s", s->self->name,
           why->message);
    say_verdict(s->conns[i].fd, why->status, why->message);
    remove_conn(s, i);
}

/* "rank 2", "ranks 2, 5"; not all of very many. */
static void
list_ranks(const serving *s, bool (*picks)(const serving *, int32_t), size_t capacity,
           char *text_p)
{
    int32_t count = 0;
    size_t used;

    for (int32_t r = 1; r < s->self->size; r++) {
        count += picks(s, r);
    }
    used = (size_t)snprintf(text_p, capacity, count == 1 ? "rank" : "ranks");
    for (int32_t r = 1, listed = 0; r < s->self->size; r++) {
        if (!picks(s, r)) {
            continue;
        }
        if (used + 32 > capacity) {
            snprintf(text_p + used, capacity - used, " and %d more", count - listed);
            return;
        }
        used += (size_t)snprintf(text_p + used, capacity - used, "%s %d",
                                 listed > 0 ? "," : "", r);
        listed++;
    }
}

static bool
is_missing(const serving *s, int32_t rank)
{
    return s->page_fds[rank] < 0;
}

static bool
is_at_work(const serving *s, int32_t rank)
{
    for (int32_t i = 0; i < s->conn_count; i++) {
        if (s->conns[i].rank == rank) {
            return s->conns[i].state != CONN_DONE;
        }
    }
    return false;
}

static bool
is_gathering(const serving *s)
{
    return s->joined < s->self->size - 1;
}

static tc_status
set_late(const serving *s, tc_error *err)
{
    bool gathering = is_gathering(s);
    double seconds = (double)(s->self->deadline_ns - s->start_ns) / 1e9;
    char ranks[256];

    list_ranks(s, gathering ? is_missing : is_at_work, sizeof(ranks), ranks);
    return tc_error_set(
        err, TC_ERR_TIMEOUT, "%s did not %s communicator '%s' within %.1f s", ranks,
        gathering ? "join" : "finish the start-up of", s->self->name, seconds);
}

/* Whoever comes for a generation has a listener; without one it will not come. */
static tc_status
look_for_missing(serving *s, tc_error *err)
{
    const tc_shm_group *group = s->self->group;
    uint64_t now = tc_clock_ns();

    if (group == NULL || !is_gathering(s) || now < s->absence_ns) {
        return TC_OK;
    }
    s->absence_ns = now + ABSENCE_NS;
    for (int32_t r = 1; r < s->self->size; r++) {
        tc_wire_shm_address address;

        if (s->page_fds[r] < 0 &&
            tc_wire_shm_address_unpack(group->addresses[r], &address, NULL) == TC_OK &&
            !tc_shm_channel_has_listener(address.socket)) {
            return tc_error_set(
                err, TC_ERR_PEER_CLOSED,
                "rank %d of membership %" PRIu64 " of communicator '%s' is gone: "
                "nobody listens at its init handle '%.150s' on this host",
                r, group->generation, s->self->name, group->addresses[r]);
        }
    }
    return TC_OK;
}

tc_status
tc_shm_serving_admit(serving *s, int32_t i, const tc_wire_hello *hello,
                     tc_shm_message *m, tc_error *err)
{
    conn *c = &s->conns[i];

    if (hello->size != s->self->size) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank %d (pid %d) has size %d, rank 0 has size %d",
                            hello->rank, hello->pid, hello->size, s->self->size);
    }
    if (s->self->group != NULL && hello->digest != s->self->group->digest) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank %d (pid %d) has other init handles, or another "
                            "order, for membership %" PRIu64 " than rank 0",
                            hello->rank, hello->pid, hello->generation);
    }
    if (hello->rank == 0 || s->page_fds[hello->rank] >= 0) {
        int32_t first = hello->rank == 0 ? (int32_t)getpid() : -1;

        for (int32_t k = 0; k < s->conn_count; k++) {
            if (s->conns[k].rank == hello->rank) {
                first = s->conns[k].pid;
            }
        }
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "two processes say that they are rank %d of communicator "
                            "'%s': pids %d and %d",
                            hello->rank, s->self->name, first, hello->pid);
    }
    if (m->fd_count != 1) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank %d (pid %d) sent %d descriptors, expected its page",
                            hello->rank, hello->pid, m->fd_count);
    }
    c->rank = hello->rank;
    c->pid = hello->pid;
    c->state = CONN_JOINED;
    s->page_fds[c->rank] = m->fds[0];
    m->fds[0] = -1;
    s->joined++;
    return TC_OK;
}

bool
tc_shm_serving_is_token(const serving *s, const tc_wire_hello *hello)
{
    uint8_t differs = 0;

    for (size_t k = 0; k < TC_WIRE_TOKEN_BYTES; k++) {
        differs |= s->leader->token[k] ^ hello->token[k];
    }
    return differs == 0;
}

uint64_t
tc_shm_serving_generation(const serving *s)
{
    return s->self->group != NULL ? s->self->group->generation : 0;
}

static tc_status
read_hello(serving *s, int32_t i, tc_shm_message *m, tc_error *err)
{
    tc_wire_hello hello;
    tc_error why;
    tc_status status = tc_wire_hello_unpack(m->bytes, m->size, &hello, &why);

    if (status == TC_OK && !tc_shm_serving_is_token(s, &hello)) {
        status = tc_error_set(&why, TC_ERR_MISMATCH,
                              "a process (pid %d) that says it is rank %d of %d has "
                              "another token than communicator '%s'",
                              hello.pid, hello.rank, hello.size, s->self->name);
    }
    if (status == TC_OK && hello.generation != tc_shm_serving_generation(s)) {
        if (tc_shm_early_keep(s, i, &hello, m)) {
            return TC_OK;
        }
        status = tc_error_set(&why, TC_ERR_MISMATCH,
                              "rank %d (pid %d) comes for membership %" PRIu64
                              " of communicator '%s', but this is membership %" PRIu64,
                              hello.rank, hello.pid, hello.generation, s->self->name,
                              tc_shm_serving_generation(s));
    }
    if (status == TC_OK) {
        return tc_shm_serving_admit(s, i, &hello, m, err);
    }
    refuse(s, i, &why);
    return TC_OK;
}

static tc_status
read_verdict(serving *s, int32_t i, tc_shm_message *m, tc_error *err)
{
    conn *c = &s->conns[i];
    tc_wire_verdict verdict;

    TC_TRY(tc_wire_verdict_unpack(m->bytes, m->size, &verdict, err));
    if (verdict.status == TC_ERR_TIMEOUT && is_gathering(s)) {
        return set_late(s, err);
    }
    if (verdict.status != TC_OK) {
        return tc_error_set(err, verdict.status, "rank %d: %s", c->rank, verdict.text);
    }
    if (c->state != CONN_WORKING) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank %d says it is ready before it can be", c->rank);
    }
    c->state = CONN_DONE;
    s->done++;
    return TC_OK;
}

/* What one connection has to say. May remove it. */
static tc_status
hear(serving *s, int32_t i, tc_error *err)
{
    conn *c = &s->conns[i];
    tc_shm_message m;
    tc_status status = tc_shm_channel_recv(c->fd, &m, err);

    if (status == TC_PENDING) {
        return TC_OK;
    }
    if (status == TC_ERR_PEER_CLOSED && c->state == CONN_STRANGER) {
        remove_conn(s, i);
        return TC_OK;
    }
    if (status == TC_ERR_PEER_CLOSED) {
        return tc_error_set(
            err, TC_ERR_PEER_DIED,
            "rank %d (pid %d) ended during the start-up of communicator "
            "'%s'",
            c->rank, c->pid, s->self->name);
    }
    if (status != TC_OK) {
        tc_error_prefix(err, "rank 0");
        return status;
    }
    status = c->state == CONN_STRANGER ? read_hello(s, i, &m, err)
                                       : read_verdict(s, i, &m, err);
    tc_shm_message_close_fds(&m);
    return status;
}

static void
make_room(serving *s)
{
    uint64_t now = tc_clock_ns();
    tc_error why;

    for (int32_t i = s->conn_count - 1; i >= 0; i--) {
        if (s->conns[i].state == CONN_STRANGER &&
            now - s->conns[i].since_ns > SILENCE_NS) {
            tc_error_set(&why, TC_ERR_MISMATCH, "silent for too long");
            refuse(s, i, &why);
        }
    }
}

tc_status
tc_shm_serving_accept(serving *s, tc_error *err)
{
    while (s->conn_count < s->conn_capacity) {
        tc_error why;
        int fd =
            accept4(s->leader->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (fd < 0 && errno == EAGAIN) {
            return TC_OK;
        }
        if (fd < 0) {
            return tc_error_errno(err, "rank 0: accepting a connection");
        }
        s->conns[s->conn_count++] =
            (conn){.fd = fd, .rank = -1, .next = -1, .since_ns = tc_clock_ns()};
        if (tc_shm_channel_check_user(fd, &why) != TC_OK) {
            refuse(s, s->conn_count - 1, &why);
        }
    }
    return TC_OK;
}

static tc_status
send_next(serving *s, conn *c, tc_error *err)
{
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];

    if (c->next < 0) {
        tc_wire_welcome welcome = {.size = s->self->size,
                                   .bytes = s->segment->layout.bytes};
        size_t size = tc_wire_welcome_pack(&welcome, bytes);

        TC_TRY(tc_shm_channel_send(c->fd, bytes, size, &s->segment_fd, 1, err));
        c->next = 0;
    } else {
        int32_t left = s->self->size - c->next;
        tc_wire_pages pages = {.first = c->next, .count = left};
        size_t size;

        if (pages.count > TC_SHM_CHANNEL_FDS) {
            pages.count = TC_SHM_CHANNEL_FDS;
        }
        size = tc_wire_pages_pack(&pages, bytes);
        TC_TRY(tc_shm_channel_send(c->fd, bytes, size, &s->page_fds[c->next],
                                   pages.count, err));
        c->next += pages.count;
    }
    return TC_OK;
}

static tc_status
hand_out(serving *s, conn *c, tc_error *err)
{
    while (c->next < s->self->size) {
        tc_status status = send_next(s, c, err);

        if (status == TC_PENDING) {
            s->crowded = true;
            return TC_OK;
        }
        if (status == TC_ERR_PEER_CLOSED) {
            break; /* why, we hear */
        }
        if (status != TC_OK) {
            tc_error_prefix(err, "rank 0, to rank %d", c->rank);
            return status;
        }
    }
    c->state = CONN_WORKING;
    return TC_OK;
}

/* Fills `polls`, one a connection and the listener last, which is left out while there
 * is no room. Returns how long to wait at most. */
static uint64_t
fill_polls(serving *s)
{
    bool full = s->conn_count == s->conn_capacity;

    for (int32_t i = 0; i < s->conn_count; i++) {
        s->polls[i] = (struct pollfd){.fd = s->conns[i].fd, .events = POLLIN};
    }
    s->polls[s->conn_count] =
        (struct pollfd){.fd = full ? -1 : s->leader->listen_fd, .events = POLLIN};
    return s->crowded                                  ? RETRY_NS
           : s->self->group != NULL && is_gathering(s) ? ABSENCE_NS
           : full                                      ? SILENCE_NS / 4
                                                       : SILENCE_NS;
}

/* Everything that can be done now, then waits. */
static tc_status
step(serving *s, tc_error *err)
{
    int32_t polled;
    uint64_t most_ns;
    tc_status status;

    TC_TRY(look_for_missing(s, err));
    s->crowded = false;
    for (int32_t i = 0; i < s->conn_count; i++) {
        if (s->conns[i].state == CONN_HANDING) {
            TC_TRY(hand_out(s, &s->conns[i], err));
        }
    }
    if (s->conn_count == s->conn_capacity) {
        make_room(s);
    }
    polled = s->conn_count;
    most_ns = fill_polls(s);
    status = tc_shm_channel_wait(s->polls, (size_t)polled + 1, s->self,
                                 s->self->deadline_ns, most_ns, err);
    if (status == TC_ERR_TIMEOUT) {
        return set_late(s, err);
    }
    TC_TRY(status);
    /* From the end: a removed connection is replaced by the last. */
    for (int32_t i = polled - 1; i >= 0; i--) {
        if (s->polls[i].revents != 0) {
            TC_TRY(hear(s, i, err));
        }
    }
    return s->polls[polled].revents != 0 ? tc_shm_serving_accept(s, err) : TC_OK;
}

static tc_status
allocate(serving *s, tc_error *err)
{
    size_t size = (size_t)s->self->size;

    s->conn_capacity = s->self->size + TC_SHM_STRANGERS;
    s->conns = calloc((size_t)s->conn_capacity, sizeof(conn));
    s->polls = calloc((size_t)s->conn_capacity + 1, sizeof(struct pollfd));
    s->page_fds = malloc(size * sizeof(int));
    if (s->conns == NULL || s->polls == NULL || s->page_fds == NULL) {
        return tc_error_set(err, TC_ERR_NO_MEMORY, "rank 0: tables for %d ranks",
                            s->self->size);
    }
    s->page_fds[0] = s->self->page_fd;
    for (int32_t r = 1; r < s->self->size; r++) {
        s->page_fds[r] = -1;
    }
    return TC_OK;
}

static tc_status
make_segment(serving *s, tc_error *err)
{
    TC_TRY(tc_shm_segment_allocate(s->self, &s->segment, err));
    TC_TRY(tc_shm_segment_create(s->segment, &s->segment_fd, err));
    for (int32_t r = 1; r < s->self->size; r++) {
        tc_status status = tc_page_map(s->page_fds[r], &s->segment->pages[r], err);

        if (status != TC_OK) {
            tc_error_prefix(err, "rank %d's page", r);
            return status;
        }
    }
    return tc_shm_segment_prepare(s->segment, s->segment_fd, err);
}

static tc_status
serve(serving *s, tc_error *err)
{
    tc_status status;

    TC_TRY(allocate(s, err));
    TC_TRY(tc_shm_early_admit(s, err));
    while (is_gathering(s)) {
        TC_TRY(step(s, err));
    }
    status = make_segment(s, err);
    if (status != TC_OK) {
        tc_error_prefix(err, "rank 0");
        return status;
    }
    for (int32_t i = 0; i < s->conn_count; i++) {
        if (s->conns[i].state == CONN_JOINED) {
            s->conns[i].state = CONN_HANDING;
        }
    }
    while (s->done < s->self->size - 1) {
        TC_TRY(step(s, err));
    }
    return TC_OK;
}

/* Nobody can connect any more. */
static void
close_door(tc_shm_leader *leader)
{
    shutdown(leader->listen_fd, SHUT_RD);
    if (leader->spare_fd >= 0) {
        close(leader->spare_fd);
        leader->spare_fd = -1;
    }
}

/* Those who have connected but were not accepted yet hear the end, too. */
static void
turn_away(tc_shm_leader *leader, tc_status status, const char *text)
{
    for (;;) {
        int fd = accept4(leader->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (fd < 0) {
            return;
        }
        say_verdict(fd, status, text);
        close(fd);
    }
}

static void
dismiss(serving *s, tc_status status, const char *text)
{
    static const char complete[] = "the communicator is complete";
    tc_status told = status == TC_INTERRUPTED ? TC_ERR_ABORTED : status;
    tc_status others = status == TC_OK ? TC_ERR_MISMATCH : told;

    /* A group's leader will serve again. */
    if (s->self->group != NULL) {
        tc_shm_early_keep_all(s);
    }
    /* A member that died after it was ready does not read this; the engine's watch over
     * its page finds that out, as at any later time. */
    while (s->conn_count > 0) {
        conn *c = &s->conns[s->conn_count - 1];
        bool stranger = c->state == CONN_STRANGER;

        say_verdict(c->fd, stranger ? others : told,
                    stranger && status == TC_OK ? complete : text);
        remove_conn(s, s->conn_count - 1);
    }
    if (s->self->group == NULL) {
        close_door(s->leader);
        turn_away(s->leader, others, status == TC_OK ? complete : text);
    }
    for (int32_t r = 1; s->page_fds != NULL && r < s->self->size; r++) {
        if (s->page_fds[r] >= 0) {
            close(s->page_fds[r]);
        }
    }
    free(s->page_fds);
    free(s->polls);
    free(s->conns);
}

static tc_status
serve_alone(const tc_shm_member *self, tc_shm_segment **segment_p, tc_error *err)
{
    tc_shm_segment *segment = NULL;
    tc_status status;
    int fd = -1;

    TC_TRY(tc_shm_segment_allocate(self, &segment, err));
    status = tc_shm_segment_create(segment, &fd, err);
    if (status == TC_OK) {
        status = tc_shm_segment_prepare(segment, fd, err);
        close(fd);
    }
    if (status != TC_OK) {
        tc_shm_segment_close(segment);
        return status;
    }
    *segment_p = segment;
    return TC_OK;
}

tc_status
tc_shm_leader_serve(tc_shm_leader *leader, const tc_shm_member *self,
                    tc_shm_segment **segment_p, tc_error *err)
{
    serving s = {.leader = leader, .self = self, .segment_fd = -1};
    tc_error text = {0};
    tc_status status;

    if (self->group != NULL) {
        tc_shm_past_add(&leader->past, self->group->generation);
    }
    if (self->size == 1) {
        return serve_alone(self, segment_p, err);
    }
    s.start_ns = tc_clock_ns();
    status = serve(&s, &text);
    dismiss(&s, status, text.message);
    if (s.segment_fd >= 0) {
        close(s.segment_fd);
    }
    if (status != TC_OK) {
        tc_shm_segment_close(s.segment);
        return tc_error_set(err, status, "%s", text.message);
    }
    *segment_p = s.segment;
    return TC_OK;
}
