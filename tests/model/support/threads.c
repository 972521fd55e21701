/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of a model, and the hooks through which the code under test reaches them.
 */
#include "model/support/threads.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "model/support/switch.h"

/* Below a thread's stack, cleared before it runs, so that what it finds there does not
 * depend on who ran before. */
enum { DEAD_BYTES = 4096, SCRUB_BYTES = 1024, NAMES = 512, BLOCK_ALIGN = 16 };

void
tc_model_sleep(const uint32_t *word, uint32_t expected);

void
tc_model_wake(const uint32_t *word);

typedef struct thread_body {
    char name[48];
    model_body_fn body;
    void *arg;
    uint8_t group;
} thread_body;

typedef struct place_name {
    const uint8_t *at;
    size_t bytes;
    char text[48];
} place_name;

model_mode threads_mode;

static thread_body bodies[MODEL_THREADS];
static int body_count;
static place_name names[NAMES];
static int name_count;
static int current = -1;
static bool building;
static uint8_t group_now; /* of what is being made */

/* State of a thread ------------------------------------------------------------------
 */

static model_thread_state *
state_of(int t)
{
    return &model_arena.head->threads[t];
}

static void
leave(thread_status status)
{
    state_of(current)->status = status;
    switch_out();
}

static void
entry(void)
{
    bodies[current].body(bodies[current].arg);
    leave(THREAD_ENDED);
}

/* In `reads`; 0 for a word that only one thread touches or nobody writes. */
static uint64_t
bit_of(uint64_t at)
{
    size_t word = arena_word((const void *)(uintptr_t)at);
    uint32_t number = word == SIZE_MAX ? 0 : model_arena.numbers[word];

    return number == 0 ? 0 : UINT64_C(1) << (number % 64);
}

/* Wakes the pauses of all who have read the word. */
static void
note_written(int writer, uint64_t at)
{
    uint64_t bit = bit_of(at);

    for (int t = 0; t < body_count; t++) {
        if (t != writer && (state_of(t)->reads & bit) != 0) {
            state_of(t)->woken = 1;
        }
    }
}

static void
flush(int t)
{
    model_thread_state *s = state_of(t);
    void *at = (void *)(uintptr_t)s->delayed_at;

    if (at == NULL) {
        return;
    }
    memcpy(at, &s->delayed_value, s->delayed_bytes);
    note_written(t, s->delayed_at);
    s->delayed_at = 0;
    s->delayed_value = 0;
    s->delayed_bytes = 0;
}

/* Points -----------------------------------------------------------------------------
 */

/* Whether the access meets one of another thread; keeps book of who does what. */
static bool
is_point(const void *addr, tc_model_access access)
{
    size_t word = arena_word(addr);
    uint8_t self = (uint8_t)(1u << current);
    uint8_t readers;
    uint8_t writers;

    if (word == SIZE_MAX) {
        return false;
    }
    readers = model_arena.readers[word];
    writers = model_arena.writers[word];
    if (access != TC_MODEL_STORE && (readers & self) == 0) {
        model_arena.readers[word] |= self;
    }
    if (access != TC_MODEL_LOAD && (writers & self) == 0) {
        model_arena.writers[word] |= self;
    }
    if (model_arena.readers[word] != readers || model_arena.writers[word] != writers) {
        readers = model_arena.readers[word];
        writers = model_arena.writers[word];
        /* Earlier accesses of others to this word may have been none. */
        if (writers != 0 && ((readers | writers) & ((readers | writers) - 1)) != 0) {
            threads_mode.surprised = true;
            if (model_arena.numbers[word] == 0) {
                model_arena.numbers[word] = (uint8_t)(++model_arena.number_count);
            }
        }
    }
    if (threads_mode.learning) {
        return true;
    }
    return ((access == TC_MODEL_LOAD ? writers : writers | readers) & ~self) != 0;
}

static void
stand_at(const void *addr, tc_model_access access)
{
    state_of(current)->at = (uint64_t)(uintptr_t)addr;
    state_of(current)->access = access;
}

/* Clears what returned calls have left below the stack, or it would get into the unused
 * parts of the next frames and tell apart states that differ in nothing else. */
static void __attribute__((noinline))
scrub(void)
{
    uint8_t below[SCRUB_BYTES];

    memset(below, 0, sizeof(below));
    __asm__ volatile("" : : "r"(below) : "memory");
}

void
tc_model_before(const void *addr, tc_model_access access)
{
    uint64_t at = (uint64_t)(uintptr_t)addr;

    if (current < 0) {
        return;
    }
    scrub();
    if (is_point(addr, access)) {
        stand_at(addr, access);
        leave(THREAD_READY);
    }
    /* A thread sees its own delayed store; here it does not read past it. */
    if (access != TC_MODEL_LOAD || state_of(current)->delayed_at == at) {
        flush(current);
    }
    if (access != TC_MODEL_STORE) {
        state_of(current)->reads |= bit_of(at);
    }
    if (access != TC_MODEL_LOAD) {
        note_written(current, at);
    }
}

void
tc_model_after(const void *addr, tc_model_access access)
{
    if (current < 0 || !threads_mode.fine) {
        return;
    }
    if (is_point(addr, access)) {
        stand_at(NULL, access);
        leave(THREAD_READY);
    }
}

bool
tc_model_delay(void *addr, uint64_t value, size_t bytes)
{
    model_thread_state *s;

    if (current < 0 || !is_point(addr, TC_MODEL_STORE)) {
        return false;
    }
    stand_at(addr, TC_MODEL_STORE);
    leave(THREAD_READY);
    s = state_of(current);
    flush(current);
    s->delayed_at = (uint64_t)(uintptr_t)addr;
    s->delayed_value = value;
    s->delayed_bytes = (uint32_t)bytes;
    if (!threads_mode.store_buffers) {
        flush(current);
    }
    if (threads_mode.fine) {
        stand_at(NULL, TC_MODEL_STORE);
        leave(THREAD_READY);
    }
    return true;
}

void
tc_model_sleep(const uint32_t *word, uint32_t expected)
{
    tc_model_before(word, TC_MODEL_LOAD);
    flush(current); /* a system call */
    if (*word == expected) {
        stand_at(word, TC_MODEL_LOAD);
        leave(THREAD_ASLEEP);
    }
}

void
tc_model_wake(const uint32_t *word)
{
    flush(current);
    for (int t = 0; t < body_count; t++) {
        model_thread_state *s = state_of(t);

        if (s->status == THREAD_ASLEEP && s->at == (uint64_t)(uintptr_t)word) {
            s->status = THREAD_READY;
            s->at = 0;
        }
    }
}

/* For bodies -------------------------------------------------------------------------
 */

uint32_t
model_choose(uint32_t n)
{
    model_thread_state *s = state_of(current);
    uint32_t chosen;

    s->choices = n;
    leave(THREAD_CHOOSES);
    chosen = s->chosen;
    s->choices = 0;
    s->chosen = 0;
    return chosen;
}

void
model_watch(void)
{
    state_of(current)->reads = 0;
    state_of(current)->woken = 0;
}

void
model_pause(void)
{
    stand_at(NULL, TC_MODEL_LOAD);
    leave(THREAD_PAUSED);
    state_of(current)->woken = 0;
}

void
model_fail(const char *format, ...)
{
    va_list args;

    if (!threads_mode.failed) {
        va_start(args, format);
        vsnprintf(threads_mode.message, sizeof(threads_mode.message), format, args);
        va_end(args);
        threads_mode.failed = true;
    }
    if (current >= 0) {
        leave(THREAD_ENDED);
    }
}

bool
model_is_inside(void)
{
    return current >= 0;
}

bool
model_is_building(void)
{
    return building;
}

/* Heaps: each thread has its own, so that addresses depend on it alone
 * ----------------- */

typedef struct block {
    uint32_t bytes; /* of what follows; 0 ends the heap */
    uint32_t used;
    uint64_t pad;
} block;

static block *
next_block(block *b)
{
    return (block *)(void *)((uint8_t *)(b + 1) + b->bytes);
}

void *
model_heap_take(size_t bytes)
{
    uint8_t *heap = model_arena.heaps + (size_t)current * ARENA_HEAP_BYTES;
    model_thread_state *s = state_of(current);
    uint32_t need = (uint32_t)((bytes + BLOCK_ALIGN) / BLOCK_ALIGN * BLOCK_ALIGN);
    block *b = (block *)(void *)heap;

    while ((uint8_t *)b < heap + s->heap_end && (b->used || b->bytes != need)) {
        b = next_block(b);
    }
    b->bytes = need;
    b->used = 1;
    /* Freed blocks are cleared: that they ever change has to be noted now. */
    model_touch(b, sizeof(*b) + need);
    if ((uint8_t *)next_block(b) > heap + s->heap_end) {
        s->heap_end = (uint64_t)((uint8_t *)next_block(b) - heap);
        if (s->heap_end > ARENA_HEAP_BYTES) {
            model_fail("a heap of %d bytes is too small", ARENA_HEAP_BYTES);
        }
    }
    return b + 1;
}

static block *
block_of(const void *at)
{
    const arena *a = &model_arena;

    if (a->base == NULL || (const uint8_t *)at < a->heaps ||
        (const uint8_t *)at >= a->shared) {
        return NULL;
    }
    return (block *)(uintptr_t)at - 1;
}

size_t
model_heap_bytes(const void *at)
{
    const block *b = block_of(at);

    return b == NULL ? 0 : b->bytes;
}

bool
model_heap_give(void *at)
{
    const arena *a = &model_arena;
    block *b = block_of(at);

    if (b == NULL) {
        /* What was made while building is kept. */
        return a->base != NULL && (uint8_t *)at >= a->shared &&
               (uint8_t *)at < a->shared + ARENA_SHARED_BYTES;
    }
    memset(at, 0, b->bytes);
    b->used = 0;
    return true;
}

/* Building
 * ----------------------------------------------------------------------------- */

void *
model_memory(size_t bytes)
{
    arena *a = &model_arena;
    size_t at = a->shared_end;

    a->shared_end += (bytes + ARENA_LINE) / ARENA_LINE * ARENA_LINE;
    if (a->shared_end > ARENA_SHARED_BYTES) {
        fprintf(stderr, "the model needs more than %d bytes\n", ARENA_SHARED_BYTES);
        __builtin_trap();
    }
    (void)arena_track(a->shared + at, bytes);
    memset(a->groups + (size_t)(a->shared + at - a->base) / ARENA_LINE, group_now,
           bytes / ARENA_LINE + 1);
    return a->shared + at;
}

void
model_group(uint8_t group)
{
    group_now = group;
}

uint8_t
threads_group(int thread)
{
    return bodies[thread].group;
}

void
model_sparse(const void *at, size_t bytes)
{
    arena_untrack(at, bytes);
}

void
model_thread(const char *name, model_body_fn body, void *arg)
{
    int t = body_count++;
    model_thread_state *s = state_of(t);
    uint8_t *end = model_arena.stacks + (size_t)(t + 1) * ARENA_STACK_BYTES;

    snprintf(bodies[t].name, sizeof(bodies[t].name), "%s", name);
    bodies[t].body = body;
    bodies[t].arg = arg;
    bodies[t].group = group_now;
    memset(model_arena.groups +
               (size_t)(model_arena.heaps - model_arena.base + t * ARENA_HEAP_BYTES) /
                   ARENA_LINE,
           group_now, ARENA_HEAP_BYTES / ARENA_LINE);
    s->status = THREAD_READY;
    s->stack = switch_prepare(end, entry);
}

void
model_touch(const void *at, size_t bytes)
{
    if (arena_track(at, bytes)) {
        threads_mode.surprised = true;
    }
}

void
model_ignore(const void *at, size_t bytes)
{
    arena_ignore(at, bytes);
}

void
model_name(const void *at, size_t bytes, const char *format, ...)
{
    va_list args;

    if (name_count < NAMES) {
        place_name *n = &names[name_count++];

        n->at = at;
        n->bytes = bytes;
        va_start(args, format);
        vsnprintf(n->text, sizeof(n->text), format, args);
        va_end(args);
    }
}

/* Scheduling
 * --------------------------------------------------------------------------- */

void
threads_clear(void)
{
    body_count = 0;
    name_count = 0;
    group_now = 0;
}

void
threads_set_building(bool on)
{
    building = on;
}

static bool
is_enabled(const model_thread_state *s)
{
    /* Before it is known what is shared, nobody knows who wakes whom. */
    return s->status == THREAD_READY ||
           (s->status == THREAD_PAUSED && (s->woken || threads_mode.learning));
}

/* Whether moving this thread would leave another that can go on. */
static bool
is_preemption(int t)
{
    const arena_head *head = model_arena.head;

    return threads_mode.preemptions > 0 && !threads_mode.learning &&
           t != (int)head->last && is_enabled(&head->threads[head->last]);
}

uint32_t
threads_moves(model_move *moves)
{
    const arena_head *head = model_arena.head;
    bool stay = is_preemption(-1) && head->preemptions >= threads_mode.preemptions;
    uint32_t n = 0;

    for (int t = 0; t < body_count; t++) {
        const model_thread_state *s = state_of(t);

        /* A choice meets nobody: it can come first. */
        if (s->status == THREAD_CHOOSES) {
            for (n = 0; n < s->choices && n < MODEL_MOVES; n++) {
                moves[n] = (model_move){.thread = (uint8_t)t, .value = n};
            }
            return n;
        }
    }
    for (int t = 0; t < body_count; t++) {
        const model_thread_state *s = state_of(t);

        if (is_enabled(s) && (!stay || t == (int)model_arena.head->last)) {
            moves[n++] = (model_move){
                .thread = (uint8_t)t, .access = (uint16_t)s->access, .at = s->at};
        }
        if (s->delayed_at != 0) {
            moves[n++] =
                (model_move){.thread = (uint8_t)t, .flush = 1, .at = s->delayed_at};
        }
    }
    return n;
}

bool
threads_have_ended(void)
{
    for (int t = 0; t < body_count; t++) {
        if (state_of(t)->status != THREAD_ENDED) {
            return false;
        }
    }
    return true;
}

void
threads_do(const model_move *move)
{
    model_thread_state *s = state_of(move->thread);

    if (move->flush) {
        flush(move->thread);
        return;
    }
    if (threads_mode.preemptions > 0) {
        model_arena.head->preemptions += is_preemption(move->thread);
        model_arena.head->last = move->thread;
    }
    s->chosen = s->status == THREAD_CHOOSES ? move->value : 0;
    memset((uint8_t *)(uintptr_t)s->stack - DEAD_BYTES, 0, DEAD_BYTES);
    current = move->thread;
    s->stack = switch_in(s->stack);
    current = -1;
}

static void
describe_place(uint64_t at, char *text, size_t capacity)
{
    const uint8_t *p = (const uint8_t *)(uintptr_t)at;

    for (int i = 0; i < name_count; i++) {
        if (p >= names[i].at && p < names[i].at + names[i].bytes) {
            snprintf(text, capacity, "%s + %d", names[i].text, (int)(p - names[i].at));
            return;
        }
    }
    for (int t = 0; t < body_count; t++) {
        long long in = p - (model_arena.heaps + (size_t)t * ARENA_HEAP_BYTES);

        if (in >= 0 && in < ARENA_HEAP_BYTES) {
            snprintf(text, capacity, "heap of %s + %lld", bodies[t].name, in);
            return;
        }
    }
    snprintf(text, capacity, "arena + %lld", (long long)(p - model_arena.shared));
}

void
threads_describe(const model_move *move, char *text, size_t capacity)
{
    static const char *const verbs[] = {"load", "store", "swap"};
    const char *name = bodies[move->thread].name;
    char place[80];

    describe_place(move->at, place, sizeof(place));
    if (move->flush) {
        snprintf(text, capacity, "%s: the delayed store to %s", name, place);
    } else if (move->at == 0) {
        snprintf(text, capacity, "%s: on%s", name, move->value > 0 ? " (choice)" : "");
    } else {
        snprintf(text, capacity, "%s: %s %s", name, verbs[move->access], place);
    }
}

void
threads_describe_all(char *text, size_t capacity)
{
    static const char *const words[] = {"absent",     "ready",   "blocked in a poll",
                                        "asleep on ", "chooses", "ended"};
    size_t used = 0;

    for (int t = 0; t < body_count && used < capacity; t++) {
        const model_thread_state *s = state_of(t);
        char place[80] = "";
        int n;

        if (s->status == THREAD_ASLEEP) {
            describe_place(s->at, place, sizeof(place));
        }
        n = snprintf(text + used, capacity - used, "%s%s: %s%s", t > 0 ? ", " : "",
                     bodies[t].name, words[s->status], place);
        used += n > 0 ? (size_t)n : 0;
    }
}

void
threads_list_shared(void)
{
    const arena *a = &model_arena;
    size_t words = ((size_t)(a->shared - a->base) + ARENA_SHARED_BYTES) / 4;

    for (size_t w = 0; w < words; w++) {
        unsigned all = a->readers[w] | a->writers[w];

        if (a->writers[w] != 0 && (all & (all - 1)) != 0) {
            char place[80];

            describe_place((uint64_t)(uintptr_t)(a->base + 4 * w), place,
                           sizeof(place));
            printf("  shared: %s, readers %x, writers %x\n", place, a->readers[w],
                   a->writers[w]);
        }
    }
}
