/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a model: what each can do next, and doing it. */
#ifndef TC_MODEL_THREADS_H
#define TC_MODEL_THREADS_H

#include "model/support/arena.h"

/* One thing that can happen: a thread runs to its next point, its delayed store becomes
 * visible, or its choice falls on `value`. */
typedef struct model_move {
    uint8_t thread;
    uint8_t flush;
    uint16_t access; /* for traces: where the thread stood before */
    uint32_t value;
    uint64_t at;
} model_move;

enum { MODEL_MOVES = 64 };

/* How points are treated, and what a run has met. */
typedef struct model_mode {
    bool store_buffers;
    bool fine;
    uint32_t preemptions;
    bool learning; /* every access is a point */
    bool surprised; /* an access that was no point should have been one: start again */
    bool failed;
    char message[512];
} model_mode;

extern model_mode threads_mode;

void
threads_clear(void);

void
threads_set_building(bool on);

/* What can happen now; 0 where all have ended or nothing can. */
uint32_t
threads_moves(model_move *moves);

bool
threads_have_ended(void);

void
threads_do(const model_move *move);

/* Of model_group. */
uint8_t
threads_group(int thread);

/* "rank 0: store of rank 0 header 1". */
void
threads_describe(const model_move *move, char *text, size_t capacity);

/* Words that are points, on stdout: to see what makes a model large. */
void
threads_list_shared(void);

/* Where each thread stands, for deadlocks. */
void
threads_describe_all(char *text, size_t capacity);

#endif
