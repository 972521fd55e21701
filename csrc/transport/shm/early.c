/* SPDX-License-Identifier: BSD-3-Clause */
/* Members that come to a leader before it serves their group. */
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/shm/serving.h"

/* A hello follows its connection at once. */
#define HELLO_MS 50

void
tc_shm_early_drop(tc_shm_leader *leader, int32_t i)
{
    close(leader->early[i].fd);
    close(leader->early[i].page_fd);
    leader->early[i] = leader->early[--leader->early_count];
}

bool
tc_shm_early_keep(serving *s, int32_t i, const tc_wire_hello *hello, tc_shm_message *m)
{
    tc_shm_leader *leader = s->leader;

    if (s->self->group == NULL || tc_shm_past_has(&leader->past, hello->generation) ||
        leader->early_count == TC_SHM_STRANGERS || m->fd_count != 1) {
        return false;
    }
    leader->early[leader->early_count++] = (early){
        .fd = s->conns[i].fd,
        .page_fd = m->fds[0],
        .hello = *hello,
    };
    m->fds[0] = -1;
    s->conns[i] = s->conns[--s->conn_count];
    return true;
}

/* One that has said anything more has given up. */
static bool
has_given_up(const early *e)
{
    struct pollfd p = {.fd = e->fd, .events = POLLIN};

    return poll(&p, 1, 0) != 0;
}

tc_status
tc_shm_early_admit(serving *s, tc_error *err)
{
    tc_shm_leader *leader = s->leader;

    for (int32_t i = leader->early_count - 1; i >= 0; i--) {
        early *e = &leader->early[i];
        tc_shm_message m = {.fds = {e->page_fd}, .fd_count = 1};
        tc_wire_hello hello = e->hello;
        tc_status status;

        if (has_given_up(e)) {
            tc_shm_early_drop(leader, i);
            continue;
        }
        if (hello.generation != tc_shm_serving_generation(s)) {
            continue;
        }
        s->conns[s->conn_count++] =
            (conn){.fd = e->fd, .rank = -1, .next = -1, .since_ns = tc_clock_ns()};
        *e = leader->early[--leader->early_count];
        status = tc_shm_serving_admit(s, s->conn_count - 1, &hello, &m, err);
        tc_shm_message_close_fds(&m);
        TC_TRY(status);
    }
    return TC_OK;
}

void
tc_shm_early_keep_all(serving *s)
{
    if (s->conns == NULL) {
        return;
    }
    (void)tc_shm_serving_accept(s, NULL);
    for (int32_t i = s->conn_count - 1; i >= 0; i--) {
        struct pollfd p = {.fd = s->conns[i].fd, .events = POLLIN};
        tc_wire_hello hello;
        tc_shm_message m;

        if (s->conns[i].state != CONN_STRANGER || poll(&p, 1, HELLO_MS) != 1 ||
            tc_shm_channel_recv(p.fd, &m, NULL) != TC_OK) {
            continue;
        }
        if (tc_wire_hello_unpack(m.bytes, m.size, &hello, NULL) == TC_OK &&
            tc_shm_serving_is_token(s, &hello) &&
            hello.generation != tc_shm_serving_generation(s)) {
            (void)tc_shm_early_keep(s, i, &hello, &m);
        }
        tc_shm_message_close_fds(&m);
    }
}
