/* SPDX-License-Identifier: BSD-3-Clause */
/* The members' side of a segment's start-up. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/shm/channel.h"
#include "transport/shm/identity.h"
#include "transport/shm/rendezvous.h"

/* How often a call that found no room is tried again. */
#define RETRY_NS TC_NSEC_PER_MSEC

/* The leader's deadline is about the same as ours, but it knows who is missing: its
 * verdict is worth a moment more. */
#define GRACE_NS (500 * TC_NSEC_PER_MSEC)

/* One start-up, from the connection to the verdict. */
typedef struct joining {
    const tc_shm_member *self;
    tc_wire_shm_address leader;
    tc_wire_shm_address own;
    uint64_t start_ns;
    uint64_t patience_ns; /* until then the leader may answer */
    int fd;
    int segment_fd;
    tc_shm_segment *segment;
    bool refused; /* the error came from the leader, which need not hear of it */
} joining;

static tc_status
nobody_listens(const joining *j, tc_error *err)
{
    if (j->leader.net_ns != j->own.net_ns && j->leader.net_ns != 0 &&
        j->own.net_ns != 0) {
        return tc_error_set(
            err, TC_ERR_UNSUPPORTED,
            "rank %d cannot reach rank 0 of communicator '%s': they are on one host in "
            "different network namespaces (%" PRIu64 " and %" PRIu64
            "); give their containers a common one",
            j->self->rank, j->self->name, j->own.net_ns, j->leader.net_ns);
    }
    return tc_error_set(err, TC_ERR_PEER_CLOSED,
                        "rank 0 of communicator '%s' listens no more: it %s before "
                        "rank %d came",
                        j->self->name,
                        j->self->group != NULL ? "ended or was finalized"
                                               : "failed or gave up",
                        j->self->rank);
}

static tc_status
reach_leader(joining *j, tc_error *err)
{
    for (;;) {
        tc_status status = tc_shm_channel_connect(j->leader.socket, &j->fd, err);

        if (status == TC_ERR_PEER_CLOSED) {
            return nobody_listens(j, err);
        }
        if (status != TC_PENDING) {
            return status;
        }
        status =
            tc_shm_channel_wait(NULL, 0, j->self, j->self->deadline_ns, RETRY_NS, err);
        if (status == TC_ERR_TIMEOUT) {
            return tc_error_set(err, status,
                                "rank 0 of communicator '%s' accepts no connection",
                                j->self->name);
        }
        TC_TRY(status);
    }
}

/* A closed connection is no error here: there may be a verdict to receive. */
static tc_status
send_message(joining *j, const void *bytes, size_t size, const int *fd, tc_error *err)
{
    for (;;) {
        tc_status status =
            tc_shm_channel_send(j->fd, bytes, size, fd, fd != NULL ? 1 : 0, err);

        if (status == TC_ERR_PEER_CLOSED) {
            return TC_OK;
        }
        if (status != TC_PENDING) {
            return status;
        }
        TC_TRY(tc_shm_channel_wait(NULL, 0, j->self, j->patience_ns, RETRY_NS, err));
    }
}

static tc_status
say_hello(joining *j, tc_error *err)
{
    tc_wire_hello hello = {
        .rank = j->self->rank, .size = j->self->size, .pid = (int32_t)getpid()};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];

    if (j->self->group != NULL) {
        hello.generation = j->self->group->generation;
        hello.digest = j->self->group->digest;
    }
    memcpy(hello.token, j->leader.token, sizeof(hello.token));
    return send_message(j, bytes, tc_wire_hello_pack(&hello, bytes), &j->self->page_fd,
                        err);
}

static tc_status
lost_leader(joining *j, tc_error *err)
{
    j->refused = true;
    return tc_error_set(err, TC_ERR_PEER_DIED,
                        "rank 0 ended during the start-up of communicator '%s'",
                        j->self->name);
}

/* The next message, unless it is a failing verdict; the caller closes its descriptors.
 */
static tc_status
receive(joining *j, tc_shm_message *message_p, tc_error *err)
{
    struct pollfd p = {.fd = j->fd, .events = POLLIN};
    tc_wire_verdict verdict;
    tc_status status;

    for (;;) {
        status = tc_shm_channel_recv(j->fd, message_p, err);
        if (status != TC_PENDING) {
            break;
        }
        status =
            tc_shm_channel_wait(&p, 1, j->self, j->patience_ns, TC_NSEC_PER_SEC, err);
        if (status == TC_ERR_TIMEOUT) {
            return tc_error_set(
                err, status,
                "rank 0 did not finish the start-up of communicator '%s' within %.1f s",
                j->self->name, (double)(j->patience_ns - j->start_ns) / 1e9);
        }
        TC_TRY(status);
    }
    if (status == TC_ERR_PEER_CLOSED) {
        return lost_leader(j, err);
    }
    TC_TRY(status);
    if (tc_wire_kind_of(message_p->bytes, message_p->size) == TC_WIRE_VERDICT &&
        tc_wire_verdict_unpack(message_p->bytes, message_p->size, &verdict, NULL) ==
            TC_OK &&
        verdict.status != TC_OK) {
        j->refused = true;
        tc_shm_message_close_fds(message_p);
        return tc_error_set(err, verdict.status, "%s", verdict.text);
    }
    return TC_OK;
}

static tc_status
read_welcome(joining *j, tc_shm_message *m, tc_error *err)
{
    tc_wire_welcome welcome;

    TC_TRY(tc_wire_welcome_unpack(m->bytes, m->size, &welcome, err));
    if (welcome.size != j->self->size || m->fd_count != 1) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank 0 has size %d and sent %d descriptors, rank %d has "
                            "size %d",
                            welcome.size, m->fd_count, j->self->rank, j->self->size);
    }
    TC_TRY(tc_shm_segment_allocate(j->self, &j->segment, err));
    if (welcome.bytes != j->segment->layout.bytes) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank 0 lays the segment out in %" PRIu64 " bytes, rank %d "
                            "in %" PRIu64,
                            welcome.bytes, j->self->rank, j->segment->layout.bytes);
    }
    TC_TRY(tc_shm_segment_attach(j->segment, m->fds[0], err));
    j->segment_fd = m->fds[0];
    m->fds[0] = -1;
    return TC_OK;
}

static tc_status
read_pages(joining *j, tc_shm_message *m, int32_t due, tc_error *err)
{
    tc_wire_pages pages;

    TC_TRY(tc_wire_pages_unpack(m->bytes, m->size, &pages, err));
    if (pages.first != due || pages.count != m->fd_count ||
        pages.count > j->self->size - due) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "rank 0 sent %d pages (%d descriptors) from rank %d on, "
                            "expected from rank %d",
                            pages.count, m->fd_count, pages.first, due);
    }
    for (int32_t i = 0; i < pages.count; i++) {
        if (due + i != j->self->rank) {
            TC_TRY(tc_page_map(m->fds[i], &j->segment->pages[due + i], err));
        }
    }
    return TC_OK;
}

static tc_status
receive_segment(joining *j, tc_error *err)
{
    tc_shm_message m;
    tc_status status;
    int32_t due = 0;

    TC_TRY(receive(j, &m, err));
    status = read_welcome(j, &m, err);
    tc_shm_message_close_fds(&m);
    TC_TRY(status);
    while (due < j->self->size) {
        int32_t count;

        TC_TRY(receive(j, &m, err));
        count = m.fd_count;
        status = read_pages(j, &m, due, err);
        tc_shm_message_close_fds(&m);
        TC_TRY(status);
        due += count;
    }
    return tc_shm_segment_prepare(j->segment, j->segment_fd, err);
}

static tc_status
await_go(joining *j, tc_error *err)
{
    tc_wire_verdict ok = {.status = TC_OK, .rank = j->self->rank};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    tc_shm_message m;

    TC_TRY(send_message(j, bytes, tc_wire_verdict_pack(&ok, bytes), NULL, err));
    TC_TRY(receive(j, &m, err));
    tc_shm_message_close_fds(&m);
    return tc_wire_verdict_unpack(m.bytes, m.size, &ok, err);
}

/* The leader tells the others. It does not matter if this does not arrive: then it sees
 * the connection end. */
static void
report(joining *j, tc_status status, const tc_error *err)
{
    tc_wire_verdict verdict = {.rank = j->self->rank};
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];

    verdict.status = status == TC_INTERRUPTED ? TC_ERR_ABORTED : status;
    memcpy(verdict.text, err->message, sizeof(verdict.text));
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    tc_shm_channel_send(j->fd, bytes, tc_wire_verdict_pack(&verdict, bytes), NULL, 0,
                        NULL);
}

static tc_status
join_leader(joining *j, tc_error *err)
{
    TC_TRY(tc_shm_channel_check_user(j->fd, err));
    TC_TRY(say_hello(j, err));
    TC_TRY(receive_segment(j, err));
    return await_go(j, err);
}

tc_status
tc_shm_address_check(const char *address, tc_error *err)
{
    tc_wire_shm_address unpacked;

    return tc_wire_shm_address_unpack(address, &unpacked, err);
}

tc_status
tc_shm_member_join(const char *address, const tc_shm_member *self,
                   tc_shm_segment **segment_p, tc_error *err)
{
    joining j = {.self = self, .fd = -1, .segment_fd = -1};
    tc_error text = {0};
    tc_status status;

    TC_TRY(tc_wire_shm_address_unpack(address, &j.leader, err));
    TC_TRY(tc_shm_identity_read(&j.own, err));
    TC_TRY(tc_shm_identity_check(&j.leader, &j.own, self->rank, err));
    j.start_ns = tc_clock_ns();
    j.patience_ns = tc_deadline_after(self->deadline_ns, GRACE_NS);
    TC_TRY(reach_leader(&j, err));
    status = join_leader(&j, &text);
    if (status != TC_OK && !j.refused) {
        report(&j, status, &text);
    }
    close(j.fd);
    if (j.segment_fd >= 0) {
        close(j.segment_fd);
    }
    if (status != TC_OK) {
        tc_shm_segment_close(j.segment);
        return tc_error_set(err, status, "%s", text.message);
    }
    *segment_p = j.segment;
    return TC_OK;
}
