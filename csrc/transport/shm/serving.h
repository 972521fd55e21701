/* SPDX-License-Identifier: BSD-3-Clause */
/* A leader's start-up in progress, for the files that carry it out. */
#ifndef TC_SHM_SERVING_H
#define TC_SHM_SERVING_H

#include "transport/shm/channel.h"
#include "transport/shm/past.h"

/* Connections beyond one a rank that may be open without having said who they are. */
enum { TC_SHM_STRANGERS = 16 };

/* A member of a group to come. It is quiet until it is served or gives up. */
typedef struct early {
    int fd;
    int page_fd;
    tc_wire_hello hello;
} early;

struct tc_shm_leader {
    int listen_fd;
    int spare_fd; /* given up to accept and refuse when there is no other left */
    uint8_t token[TC_WIRE_TOKEN_BYTES];
    tc_shm_past past;
    early early[TC_SHM_STRANGERS];
    int32_t early_count;
};

typedef enum conn_state {
    CONN_STRANGER, /* has not said hello */
    CONN_JOINED, /* waits for the others */
    CONN_HANDING, /* is being sent descriptors */
    CONN_WORKING, /* maps and populates */
    CONN_DONE, /* waits for the others to be done */
} conn_state;

typedef struct conn {
    int fd;
    conn_state state;
    int32_t rank; /* -1: stranger */
    int32_t pid; /* as it said */
    int32_t next; /* rank whose page is sent next; -1: the welcome is */
    uint64_t since_ns;
} conn;

/* One start-up. Invariant: `joined` connections are past CONN_STRANGER, `done` of them
 * in CONN_DONE, and page_fds[r] >= 0 for exactly those and the own rank. */
typedef struct serving {
    tc_shm_leader *leader;
    const tc_shm_member *self;
    uint64_t start_ns;
    conn *conns;
    struct pollfd *polls;
    int *page_fds;
    int32_t conn_count;
    int32_t conn_capacity;
    int32_t joined;
    int32_t done;
    bool crowded; /* a send found no room */
    uint64_t absence_ns; /* when to look for the missing again */
    int segment_fd;
    tc_shm_segment *segment;
} serving;

/* leader.c ------------------------------------------------------------------------- */

/* The member is known by its token: from here on what it says is one of the ranks'.
 * Takes the page out of the message. */
tc_status
tc_shm_serving_admit(serving *s, int32_t i, const tc_wire_hello *hello,
                     tc_shm_message *m, tc_error *err);

/* Takes in who has connected, while there is room. */
tc_status
tc_shm_serving_accept(serving *s, tc_error *err);

bool
tc_shm_serving_is_token(const serving *s, const tc_wire_hello *hello);

/* Of the group; 0 without one. */
uint64_t
tc_shm_serving_generation(const serving *s);

/* early.c: members of a group to come ---------------------------------------------- */

void
tc_shm_early_drop(tc_shm_leader *leader, int32_t i);

/* Keeps connection `i`, which has said hello, for a later start-up; false where that
 * cannot be. */
bool
tc_shm_early_keep(serving *s, int32_t i, const tc_wire_hello *hello, tc_shm_message *m);

/* Admits those who came for this generation before it was served. */
tc_status
tc_shm_early_admit(serving *s, tc_error *err);

/* At the end of a start-up: who has connected and said nothing yet is heard, and kept
 * if it is early. The others stay among the connections. */
void
tc_shm_early_keep_all(serving *s);

#endif
