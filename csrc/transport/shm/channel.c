/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequenced-packet sockets that carry descriptors. */
#include "transport/shm/channel.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

#define LOOK_NS (25 * TC_NSEC_PER_MSEC)

void
tc_shm_message_close_fds(tc_shm_message *message)
{
    for (int32_t i = 0; i < message->fd_count; i++) {
        if (message->fds[i] >= 0) {
            close(message->fds[i]);
        }
    }
    message->fd_count = 0;
}

/* An abstract name: it goes with its socket, and no file system has it. */
static socklen_t
make_name(const char *name, struct sockaddr_un *addr_p)
{
    int length;

    memset(addr_p, 0, sizeof(*addr_p));
    addr_p->sun_family = AF_UNIX;
    length = snprintf(addr_p->sun_path + 1, sizeof(addr_p->sun_path) - 1,
                      "torchcomms-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int
open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

tc_status
tc_shm_channel_listen(const char *name, int *fd_p, tc_error *err)
{
    struct sockaddr_un addr;
    socklen_t length = make_name(name, &addr);
    int fd = open_socket();

    if (fd < 0) {
        return tc_error_errno(err, "unix socket");
    }
    if (bind(fd, (struct sockaddr *)&addr, length) != 0 || listen(fd, 4096) != 0) {
        tc_status status = tc_error_errno(err, "listening on @%s", addr.sun_path + 1);

        close(fd);
        return status;
    }
    *fd_p = fd;
    return TC_OK;
}

bool
tc_shm_channel_has_listener(const char *name)
{
    struct sockaddr_un addr;
    socklen_t length = make_name(name, &addr);
    int fd = open_socket();
    bool has = true;

    if (fd >= 0) {
        has = bind(fd, (struct sockaddr *)&addr, length) != 0;
        close(fd);
    }
    return has;
}

tc_status
tc_shm_channel_connect(const char *name, int *fd_p, tc_error *err)
{
    struct sockaddr_un addr;
    socklen_t length = make_name(name, &addr);
    tc_status status;
    int fd = open_socket();

    if (fd < 0) {
        return tc_error_errno(err, "unix socket");
    }
    if (connect(fd, (struct sockaddr *)&addr, length) == 0) {
        *fd_p = fd;
        return TC_OK;
    }
    if (errno == EAGAIN || errno == EINTR) {
        status = TC_PENDING;
    } else if (errno == ECONNREFUSED) {
        status = tc_error_set(err, TC_ERR_PEER_CLOSED, "nobody listens on @%s",
                              addr.sun_path + 1);
    } else {
        status = tc_error_errno(err, "connecting to @%s", addr.sun_path + 1);
    }
    close(fd);
    return status;
}

tc_status
tc_shm_channel_check_user(int fd, tc_error *err)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return tc_error_errno(err, "credentials of a peer");
    }
    if (peer.uid != geteuid()) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "the peer (pid %d) runs as user %u, this process as %u",
                            (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
    }
    return TC_OK;
}

tc_status
tc_shm_channel_send(int fd, const void *bytes, size_t size, const int *fds,
                    int32_t fd_count, tc_error *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(TC_SHM_CHANNEL_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (fd_count > 0) {
        size_t fd_bytes = (size_t)fd_count * sizeof(int);
        struct cmsghdr *header;

        memset(&control, 0, sizeof(control));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(fd_bytes);
        header = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_bytes);
        memcpy(CMSG_DATA(header), fds, fd_bytes);
    }
    do {
        n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) {
        return TC_OK;
    }
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) {
        return TC_PENDING;
    }
    if (errno == EPIPE || errno == ECONNRESET) {
        return tc_error_set(err, TC_ERR_PEER_CLOSED, "the connection is closed");
    }
    return tc_error_errno(err, "sending %zu bytes and %d descriptors", size, fd_count);
}

static void
take_fds(struct msghdr *msg, tc_shm_message *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

            memcpy(message->fds, CMSG_DATA(c), count * sizeof(int));
            message->fd_count = (int32_t)count;
        }
    }
}

tc_status
tc_shm_channel_recv(int fd, tc_shm_message *message_p, tc_error *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(TC_SHM_CHANNEL_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = message_p->bytes,
                        .iov_len = sizeof(message_p->bytes)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    bool reset = false;
    ssize_t n;

    message_p->fd_count = 0;
    message_p->size = 0;
    for (;;) {
        n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        /* A peer that closed with something unread resets the connection, but what it
         * had sent before is still there: the second call reads it. */
        if (n >= 0 || (errno != EINTR && (errno != ECONNRESET || reset))) {
            break;
        }
        reset = reset || errno == ECONNRESET;
    }
    if (n < 0 && errno == EAGAIN) {
        return TC_PENDING;
    }
    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        return tc_error_set(err, TC_ERR_PEER_CLOSED, "the connection is closed");
    }
    if (n < 0) {
        return tc_error_errno(err, "receiving a start-up message");
    }
    take_fds(&msg, message_p);
    message_p->size = (msg.msg_flags & MSG_TRUNC) != 0 ? 0 : (size_t)n;
    if ((msg.msg_flags & MSG_CTRUNC) != 0) {
        int32_t kept = message_p->fd_count;

        tc_shm_message_close_fds(message_p);
        errno = EMFILE;
        return tc_error_errno(err, "received %d descriptors and lost the rest", kept);
    }
    return TC_OK;
}

tc_status
tc_shm_channel_wait(struct pollfd *fds, size_t count, const tc_shm_member *self,
                    uint64_t deadline_ns, uint64_t most_ns, tc_error *err)
{
    uint64_t now = tc_clock_ns();
    uint64_t end = tc_deadline_after(now, most_ns);

    for (;;) {
        uint64_t left = end < deadline_ns ? end : deadline_ns;
        struct timespec t = {0};
        int ready;

        if (now >= deadline_ns) {
            return tc_error_set(err, TC_ERR_TIMEOUT, "deadline");
        }
        left = left > now ? left - now : 0;
        t.tv_nsec = (long)(left < LOOK_NS ? left : LOOK_NS);
        ready = ppoll(fds, (nfds_t)count, &t, NULL);
        if (ready > 0) {
            return TC_OK;
        }
        if (ready < 0 && errno != EINTR && errno != EAGAIN) {
            return tc_error_errno(err, "poll of %zu sockets", count);
        }
        if (self->interrupted != NULL && self->interrupted(self->interrupted_ctx)) {
            return tc_error_set(err, TC_INTERRUPTED,
                                "start-up of communicator '%s' was interrupted",
                                self->name);
        }
        now = tc_clock_ns();
        if (now >= end) {
            return TC_OK;
        }
    }
}
