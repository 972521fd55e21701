/* SPDX-License-Identifier: BSD-3-Clause */
/* Explores all interleavings of a few threads that run the real code in one process. */
#ifndef TC_MODEL_MODEL_H
#define TC_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How. Threads are coroutines. All that they share, their heaps and their stacks lie in
 * one arena, so a state is a copy of its used parts. From each state every thread that
 * can run is run up to its next point; states seen before are not explored again.
 * Points are the atomic accesses of base/atomic.h to words that another thread writes
 * (or, for a write, touches); docs/design/model.md says why these are enough. */

enum {
    MODEL_THREADS = 8,
    MODEL_TRACE_BYTES = 24 * 1024,
    MODEL_STATES = 24 * 1000 * 1000, /* about 1 GiB; then a search is cut short */
};

typedef void (*model_body_fn)(void *arg);

/* What is explored. */
typedef struct model_case {
    const char *name;
    /* Makes memory and threads, outside of any thread; malloc is model_memory here. */
    void (*build)(void *ctx);
    /* When all threads have ended; reads only. May be NULL. */
    void (*at_end)(void *ctx);
    void *ctx;
    /* Stores that are not sequentially consistent may become visible after later loads
     * of their thread, one at a time (the store buffer of x86). */
    bool store_buffers;
    /* Also a point behind each access, so that others may run between it and the plain
     * accesses that follow: finds data that is written after it was published. */
    bool fine;
    /* 0: everything. Otherwise so many random runs instead. */
    uint64_t samples;
    /* 0: no limit. Otherwise a thread that can go on is left for another at most so
     * often in a run; to leave a blocked one is free. */
    uint32_t preemptions;
    uint64_t max_states; /* 0: MODEL_STATES */
} model_case;

typedef struct model_report {
    bool failed;
    bool complete; /* every interleaving was covered */
    uint64_t states; /* different ones */
    uint64_t steps; /* runs of a thread from one point to the next */
    uint64_t endings; /* different final states */
    double interleavings; /* that the explored graph stands for; sampled: runs */
    char message[512]; /* what went wrong */
    char trace[MODEL_TRACE_BYTES]; /* and the steps that lead there */
} model_report;

void
model_run(const model_case *c, model_report *report_p);

/* Runs and prints one line; on a failure, or where `planted` and no failure is found,
 * tells so on stderr and ends the program. */
void
model_expect_none(const model_case *c);

void
model_expect_fault(const model_case *c, const char *text);

/* True where the program's first argument or TC_MODEL_FULL asks for the long form. */
bool
model_is_full(int argc, char **argv);

/* While building ------------------------------------------------------------------- */

/* Zeroed, on lines of its own, part of the state. */
void *
model_memory(size_t bytes);

/* From here on memory belongs to the threads of this group, which are those made from
 * here on, and nobody else writes it; 0: to all. Saves looking for changes there. */
void
model_group(uint8_t group);

void
model_thread(const char *name, model_body_fn body, void *arg);

/* Of this memory, lines are state only once they were seen to change: for what is large
 * and mostly unused. A line that changed must not come back to what it was. */
void
model_sparse(const void *at, size_t bytes);

/* Inside a thread: these lines are used from here on. For lines of sparse memory that
 * do come back to what they were. */
void
model_touch(const void *at, size_t bytes);

/* Not part of the state: what is only written, or what no rule of the case reads. */
void
model_ignore(const void *at, size_t bytes);

/* For traces. */
void
model_name(const void *at, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Inside a thread ------------------------------------------------------------------ */

/* One of 0 to n - 1; all are explored. */
uint32_t
model_choose(uint32_t n);

/* A poll that found nothing: model_watch before it, model_pause after it. The thread
 * goes on when another thread has written something that it read since model_watch. */
void
model_watch(void);

void
model_pause(void);

/* Ends the run as failed; returns only outside of a thread. */
void
model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define MODEL_CHECK(condition) \
    do { \
        if (!(condition)) { \
            model_fail("%s:%d: not true: %s", __FILE__, __LINE__, #condition); \
        } \
    } while (0)

/* For the stand-ins of libc ----------------------------------------------------------
 */

bool
model_is_inside(void); /* in a thread */

bool
model_is_building(void);

void *
model_heap_take(size_t bytes);

size_t
model_heap_bytes(const void *block);

/* False where the block is none of the arena's. */
bool
model_heap_give(void *block);

#endif
