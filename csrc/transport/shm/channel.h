/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages with descriptors over an abstract unix socket: every call returns at once,
 * and one function waits. */
#ifndef TC_SHM_CHANNEL_H
#define TC_SHM_CHANNEL_H

#include <poll.h>

#include "transport/shm/segment.h"
#include "wire/shm_address.h"

/* The kernel takes up to 253; fewer, so that a receiver needs few free descriptors. */
enum { TC_SHM_CHANNEL_FDS = 64 };

/* A received message owns its descriptors until they are taken out (set to -1). */
typedef struct tc_shm_message {
    uint8_t bytes[TC_WIRE_MESSAGE_BYTES];
    size_t size;
    int fds[TC_SHM_CHANNEL_FDS];
    int32_t fd_count;
} tc_shm_message;

void
tc_shm_message_close_fds(tc_shm_message *message);

/* Non-blocking and close-on-exec, as all of these. */
tc_status
tc_shm_channel_listen(const char *name, int *fd_p, tc_error *err);

/* Whether a socket of this network namespace has the name. Tells a member that is late
 * from one that has ended, without a trace in its queue. */
bool
tc_shm_channel_has_listener(const char *name);

/* TC_PENDING: the leader has not accepted the many that came before; try again soon.
 * TC_ERR_PEER_CLOSED: nobody listens under this name. */
tc_status
tc_shm_channel_connect(const char *name, int *fd_p, tc_error *err);

/* The other side runs as the same user, by the kernel's word. */
tc_status
tc_shm_channel_check_user(int fd, tc_error *err);

/* TC_PENDING: no room, or too many descriptors of this user are on their way; try again
 * soon. TC_ERR_PEER_CLOSED: nobody will read it, but there may be something to receive.
 */
tc_status
tc_shm_channel_send(int fd, const void *bytes, size_t size, const int *fds,
                    int32_t fd_count, tc_error *err);

/* TC_PENDING: nothing there. TC_ERR_PEER_CLOSED: the end. A message that is too long
 * comes with size 0, which no parser accepts. Descriptors that this process had no room
 * for are TC_ERR_SYSTEM. */
tc_status
tc_shm_channel_recv(int fd, tc_shm_message *message_p, tc_error *err);

/* Polls until something is ready or `most_ns` are over, both TC_OK; TC_ERR_TIMEOUT at
 * `deadline_ns`; TC_INTERRUPTED when the member's callback says so, asked every 25 ms
 * and after each signal. */
tc_status
tc_shm_channel_wait(struct pollfd *fds, size_t count, const tc_shm_member *self,
                    uint64_t deadline_ns, uint64_t most_ns, tc_error *err);

#endif
