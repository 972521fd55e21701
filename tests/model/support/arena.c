/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a model. */
#include "model/support/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

arena model_arena;

enum {
    HEAD_BYTES = 4096,
    STACKS_BYTES = MODEL_THREADS * ARENA_STACK_BYTES,
    HEAPS_BYTES = MODEL_THREADS * ARENA_HEAP_BYTES,
    DATA_BYTES = HEAPS_BYTES + ARENA_SHARED_BYTES,
    LINES = DATA_BYTES / ARENA_LINE,
    WORDS = DATA_BYTES / 4,
};

_Static_assert(sizeof(arena_head) <= HEAD_BYTES, "the head has its place");

/* Neighbouring lines of `tracked` as ranges. */
static struct {
    struct range {
        uint8_t *at;
        size_t bytes;
    } all[LINES];
    size_t count;
} ranges;

static void *
map(size_t bytes)
{
    void *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

void
arena_open(void)
{
    arena *a = &model_arena;

    if (a->base != NULL) {
        return;
    }
    a->base = map((size_t)HEAD_BYTES + STACKS_BYTES + DATA_BYTES);
    a->head = (arena_head *)(void *)a->base;
    a->stacks = a->base + HEAD_BYTES;
    a->heaps = a->stacks + STACKS_BYTES;
    a->shared = a->heaps + HEAPS_BYTES;
    a->tracked = map(LINES);
    a->ignored = map(LINES);
    a->readers = map(WORDS);
    a->writers = map(WORDS);
    a->numbers = map(WORDS);
    a->initial = map(DATA_BYTES);
}

void
arena_clear(void)
{
    arena *a = &model_arena;

    arena_open();
    memset(a->head, 0, sizeof(*a->head));
    memset(a->heaps, 0, HEAPS_BYTES);
    memset(a->shared, 0, a->shared_end);
    a->shared_end = 0;
    memset(a->tracked, 0, LINES);
    memset(a->ignored, 0, LINES);
    memset(a->readers, 0, WORDS);
    memset(a->writers, 0, WORDS);
    memset(a->numbers, 0, WORDS);
    a->number_count = 0;
    ranges.count = 0;
}

void
arena_begin(void)
{
    static size_t capacity;
    arena *a = &model_arena;

    memcpy(a->initial, a->heaps, HEAPS_BYTES + a->shared_end);
    a->first_bytes = arena_save(&a->first, &capacity);
}

void
arena_rewind(void)
{
    arena *a = &model_arena;

    memcpy(a->heaps, a->initial, HEAPS_BYTES + a->shared_end);
    memcpy(a->head, a->first, sizeof(*a->head));
    for (int t = 0, at = sizeof(*a->head); t < MODEL_THREADS; t++) {
        const model_thread_state *s = &a->head->threads[t];
        uint8_t *end = a->stacks + (size_t)(t + 1) * ARENA_STACK_BYTES;

        if (s->status != THREAD_ABSENT) {
            size_t n = (size_t)(end - (uint8_t *)s->stack);

            memcpy((uint8_t *)s->stack, a->first + at, n);
            at += (int)n;
        }
    }
}

static void
find_ranges(void)
{
    arena *a = &model_arena;
    size_t lines = (HEAPS_BYTES + a->shared_end) / ARENA_LINE;

    ranges.count = 0;
    for (size_t line = 0; line < lines; line++) {
        size_t first = line;

        while (line < lines && a->tracked[line]) {
            line++;
        }
        if (line > first) {
            ranges.all[ranges.count++] = (struct range){a->heaps + first * ARENA_LINE,
                                                        (line - first) * ARENA_LINE};
        }
    }
}

static bool
learn_range(size_t from, size_t to)
{
    arena *a = &model_arena;
    bool more = false;

    for (size_t at = from; at < to; at += ARENA_LINE) {
        size_t line = at / ARENA_LINE;

        if (!a->tracked[line] && !a->ignored[line] &&
            memcmp(a->heaps + at, a->initial + at, ARENA_LINE) != 0) {
            a->tracked[line] = 1;
            more = true;
        }
    }
    return more;
}

bool
arena_learn(void)
{
    arena *a = &model_arena;
    bool more = learn_range(HEAPS_BYTES, HEAPS_BYTES + a->shared_end);

    for (size_t t = 0; t < MODEL_THREADS; t++) {
        size_t from = t * ARENA_HEAP_BYTES;

        more = learn_range(from, from + a->head->threads[t].heap_end) || more;
    }
    if (more) {
        find_ranges();
    }
    return more;
}

/* Visits every piece of the state in a fixed order. */
typedef void (*piece_fn)(void *at, size_t bytes, void *ctx);

static void
each_piece(piece_fn visit, void *ctx)
{
    arena *a = &model_arena;

    /* First, for it says where the stacks end. */
    visit(a->head, sizeof(*a->head), ctx);
    for (int t = 0; t < MODEL_THREADS; t++) {
        const model_thread_state *s = &a->head->threads[t];
        uint8_t *end = a->stacks + (size_t)(t + 1) * ARENA_STACK_BYTES;

        if (s->status != THREAD_ABSENT && s->status != THREAD_ENDED) {
            visit((uint8_t *)s->stack, (size_t)(end - (uint8_t *)s->stack), ctx);
        }
    }
    for (size_t i = 0; i < ranges.count; i++) {
        visit(ranges.all[i].at, ranges.all[i].bytes, ctx);
    }
}

typedef struct saving {
    uint8_t *buffer;
    size_t capacity;
    size_t used;
} saving;

static void
save_piece(void *at, size_t bytes, void *ctx)
{
    saving *s = ctx;

    if (s->used + bytes > s->capacity) {
        s->capacity = 2 * (s->used + bytes);
        s->buffer = realloc(s->buffer, s->capacity);
        if (s->buffer == NULL) {
            perror("realloc");
            exit(1);
        }
    }
    memcpy(s->buffer + s->used, at, bytes);
    s->used += bytes;
}

static void
restore_piece(void *at, size_t bytes, void *ctx)
{
    const uint8_t **from = ctx;

    memcpy(at, *from, bytes);
    *from += bytes;
}

size_t
arena_save(uint8_t **buffer_p, size_t *capacity_p)
{
    saving s = {*buffer_p, *capacity_p, 0};

    each_piece(save_piece, &s);
    *buffer_p = s.buffer;
    *capacity_p = s.capacity;
    return s.used;
}

void
arena_restore(const uint8_t *buffer)
{
    each_piece(restore_piece, &buffer);
}

size_t
arena_word(const void *addr)
{
    const arena *a = &model_arena;
    size_t offset = (size_t)((const uint8_t *)addr - a->heaps);

    return (const uint8_t *)addr < a->heaps || offset >= (size_t)DATA_BYTES
               ? SIZE_MAX
               : offset / 4;
}
