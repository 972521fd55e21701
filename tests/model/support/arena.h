/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a model: what is state, copies of it, and who touches which word. */
#ifndef TC_MODEL_ARENA_H
#define TC_MODEL_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/support/model.h"

enum {
    ARENA_STACK_BYTES = 64 * 1024,
    ARENA_HEAP_BYTES = 64 * 1024, /* of a thread */
    ARENA_SHARED_BYTES = 2 * 1024 * 1024,
    ARENA_LINE = 64,
};

typedef enum thread_status {
    THREAD_ABSENT,
    THREAD_READY,
    THREAD_PAUSED, /* until `woken` */
    THREAD_ASLEEP, /* on the word `at` */
    THREAD_CHOOSES, /* one of `choices` */
    THREAD_ENDED,
} thread_status;

/* The part of a thread that is state. */
typedef struct model_thread_state {
    uint32_t status;
    uint32_t access; /* tc_model_access that it stands before or behind */
    uint64_t stack; /* address of its last word in use */
    uint64_t at; /* the word it accesses next, has just accessed, or sleeps on */
    uint64_t reads; /* since model_watch: one bit a word, hashed */
    uint32_t woken; /* one of them was written since */
    uint32_t choices;
    uint64_t delayed_at; /* store buffer; 0: empty */
    uint64_t delayed_value;
    uint32_t delayed_bytes;
    uint32_t chosen;
    uint64_t heap_end; /* bytes of its heap in use */
} model_thread_state;

/* At the start of the arena. */
typedef struct arena_head {
    model_thread_state threads[MODEL_THREADS];
    uint32_t last; /* with a limit of preemptions: who moved last, */
    uint32_t preemptions; /* and how often it could have gone on and did not */
} arena_head;

/* From `base`: head, stacks, heaps, shared memory. */
typedef struct arena {
    uint8_t *base;
    arena_head *head;
    uint8_t *stacks;
    uint8_t *heaps;
    uint8_t *shared;
    size_t shared_end;
    uint8_t *tracked; /* by line of the arena: is state */
    uint8_t *ignored; /* by the same */
    uint8_t *groups; /* by the same: whose, 0: all threads' */
    uint8_t *initial; /* copy of the start */
    uint8_t *readers; /* by 4 bytes of the arena: bit t, thread t */
    uint8_t *writers;
    uint8_t
        *numbers; /* by the same: of the words that are points, from 1; 0: no point */
    uint32_t number_count;
} arena;

extern arena model_arena;

/* Forgets everything. */
void
arena_clear(void);

/* After building: keeps the start. */
void
arena_begin(void);

/* Back to the start, all memory. */
void
arena_rewind(void);

/* Makes the lines of a range state, or not; true when some were not before. */
bool
arena_track(const void *at, size_t bytes);

void
arena_untrack(const void *at, size_t bytes);

/* Leaves whole lines of a range out for good. */
void
arena_ignore(const void *at, size_t bytes);

/* Marks what has changed since the start as state; true when there was more of it than
 * known. */
bool
arena_learn(void);

/* The search goes from state to state by their differences
 * ----------------------------- */

/* Begins at the start, which has the hash 0. */
void
arena_mark(void);

/* After a move of the thread: notes what it has changed, of its group's memory and of
 * all threads', and returns the new hash. */
uint64_t
arena_commit(int thread, uint8_t group);

/* False where a thread has written to the memory of a group that is not its own. */
bool
arena_is_committed(void);

/* Notes so far, and taking back all but the first `count` of them. */
size_t
arena_notes(void);

void
arena_undo(size_t count);

/* Index of the word of 4 bytes, SIZE_MAX for memory that no two threads share. */
size_t
arena_word(const void *addr);

#endif
