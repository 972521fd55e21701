/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenarios for the start-up of a segment: actors, most of them ranks. */
#ifndef TC_SUPPORT_SCENE_H
#define TC_SUPPORT_SCENE_H

#include "transport/shm/channel.h"
#include "transport/shm/segment.h"

#define SCENE_RANKS 64
#define SCENE_ACTORS (SCENE_RANKS + 40)

/* How one actor's part ended. */
typedef struct outcome {
    tc_status status;
    char message[508];
    int32_t leaked; /* descriptors */
} outcome;

/* Shared by all actors, processes or threads. Actor r below `size` is rank r, unless
 * its act says otherwise. */
typedef struct scene {
    int32_t size;
    int32_t actors;
    uint64_t timeout_ns;
    uint32_t open; /* the address is there */
    uint32_t arrived; /* for the acts: who has come how far */
    bool threads;
    char address[TC_SHM_ADDRESS_BYTES];
    outcome outcomes[SCENE_ACTORS];
} scene;

typedef void (*act_fn)(scene *s, int32_t actor);

int32_t
count_fds(void);

scene *
scene_create(int32_t size, int32_t actors);

void
scene_destroy(scene *s);

/* Runs `acts[i]` (or `otherwise`, where that is NULL) as process i, waits for all. An
 * actor ends well, without a descriptor more than before, or by its own SIGKILL. */
void
play(scene *s, const act_fn *acts, act_fn otherwise);

/* Spins until rank 0 has told its address. */
void
await_address(scene *s);

/* The `number`th barrier of the ranks, counted from 1. */
void
pass_barrier(scene *s, uint32_t number);

tc_shm_member
member_of(scene *s, int32_t rank, tc_page *page, int page_fd);

/* The start-up of one rank, with rank 0 as the leader. */
tc_status
start(scene *s, const tc_shm_member *self, tc_shm_segment **segment_p, tc_error *err);

/* Starts as `rank`, notes the outcome and ends; `interrupted` may be NULL. */
void
take_part_as(scene *s, int32_t actor, int32_t rank, bool (*interrupted)(void *));

/* The same as rank `actor`: what most actors do. */
void
take_part(scene *s, int32_t actor);

/* For the place of a rank that never comes. */
void
stay_away(scene *s, int32_t actor);

/* A member by hand, that does what no rank of ours does. */
int
connect_by_hand(scene *s, tc_wire_shm_address *address_p);

void
send_hello(int fd, const uint8_t *token, int32_t rank, int32_t size, int page_fd);

void
send_verdict(int fd, tc_status status, int32_t rank, const char *text);

tc_status
await_message(int fd, tc_shm_message *message_p);

/* The verdict that ends a connection goes to the actor's outcome. */
void
await_verdict(scene *s, int32_t actor, int fd);

/* The descriptor of a page. */
int
make_page(void);

/* A rank that comes when all is over hears no more than that. */
bool
is_too_late(const outcome *out);

/* The outcomes of all ranks but `spared`: this status, and both words in the text. */
void
check_all(const scene *s, int32_t spared, tc_status status, const char *a,
          const char *b);

#endif
