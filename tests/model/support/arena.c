/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a model: what is state, its hash, and ways back. */
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
    SHARED_AT = HEAD_BYTES + STACKS_BYTES + HEAPS_BYTES,
    BYTES = SHARED_AT + ARENA_SHARED_BYTES,
    LINES = BYTES / ARENA_LINE,
    WORDS = BYTES / 4,
};

_Static_assert(sizeof(arena_head) <= HEAD_BYTES, "the head has its place");

/* The lines that are state, but for stacks, as ranges. */
static struct {
    struct range {
        size_t at;
        size_t end;
        uint8_t group;
    } all[LINES];
    size_t count;
} ranges;

/* A line as it was. */
typedef struct note {
    size_t at;
    uint8_t old[ARENA_LINE];
    uint64_t hash; /* of the state before */
} note;

static struct {
    uint8_t *shadow; /* the state as last committed */
    note *notes;
    size_t count;
    size_t capacity;
    uint64_t hash;
} trail;

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

static void
open_arena(void)
{
    arena *a = &model_arena;

    a->base = map(BYTES);
    a->head = (arena_head *)(void *)a->base;
    a->stacks = a->base + HEAD_BYTES;
    a->heaps = a->stacks + STACKS_BYTES;
    a->shared = a->heaps + HEAPS_BYTES;
    a->tracked = map(LINES);
    a->ignored = map(LINES);
    a->groups = map(LINES);
    a->initial = map(BYTES);
    a->readers = map(WORDS);
    a->writers = map(WORDS);
    a->numbers = map(WORDS);
    trail.shadow = map(BYTES);
}

/* Bytes of the arena in use. */
static size_t
used_bytes(void)
{
    return SHARED_AT + model_arena.shared_end;
}

void
arena_clear(void)
{
    arena *a = &model_arena;

    if (a->base == NULL) {
        open_arena();
    }
    memset(a->base, 0, used_bytes());
    memset(a->tracked, 0, LINES);
    memset(a->ignored, 0, LINES);
    memset(a->groups, 0, LINES);
    memset(a->readers, 0, WORDS);
    memset(a->writers, 0, WORDS);
    memset(a->numbers, 0, WORDS);
    a->number_count = 0;
    a->shared_end = 0;
    (void)arena_track(a->head, sizeof(*a->head));
}

void
arena_begin(void)
{
    memcpy(model_arena.initial, model_arena.base, used_bytes());
}

void
arena_rewind(void)
{
    memcpy(model_arena.base, model_arena.initial, used_bytes());
}

/* What is state
 * ------------------------------------------------------------------------ */

static size_t
offset_of(const void *at)
{
    return (size_t)((const uint8_t *)at - model_arena.base);
}

bool
arena_track(const void *at, size_t bytes)
{
    arena *a = &model_arena;
    size_t end = offset_of(at) + bytes;
    bool more = false;

    for (size_t line = offset_of(at) / ARENA_LINE; line * ARENA_LINE < end; line++) {
        more = more || !a->tracked[line];
        a->tracked[line] = 1;
    }
    return more;
}

void
arena_untrack(const void *at, size_t bytes)
{
    memset(model_arena.tracked + offset_of(at) / ARENA_LINE, 0, bytes / ARENA_LINE);
}

void
arena_ignore(const void *at, size_t bytes)
{
    size_t end = (offset_of(at) + bytes) / ARENA_LINE;

    for (size_t line = (offset_of(at) + ARENA_LINE - 1) / ARENA_LINE; line < end;
         line++) {
        model_arena.ignored[line] = 1;
        model_arena.tracked[line] = 0;
    }
}

bool
arena_learn(void)
{
    arena *a = &model_arena;
    bool more = false;

    /* Heaps are tracked as they are used. */
    for (size_t at = SHARED_AT; at < used_bytes(); at += ARENA_LINE) {
        size_t line = at / ARENA_LINE;

        if (!a->tracked[line] && !a->ignored[line] &&
            memcmp(a->base + at, a->initial + at, ARENA_LINE) != 0) {
            a->tracked[line] = 1;
            more = true;
        }
    }
    return more;
}

static void
find_ranges(void)
{
    size_t lines = used_bytes() / ARENA_LINE;

    ranges.count = 0;
    for (size_t line = 0; line < lines; line++) {
        size_t first = line;
        uint8_t group = model_arena.groups[line];

        while (line < lines && model_arena.tracked[line] &&
               model_arena.groups[line] == group) {
            line++;
        }
        if (line > first) {
            ranges.all[ranges.count++] =
                (struct range){first * ARENA_LINE, line * ARENA_LINE, group};
            line--;
        }
    }
}

/* Differences
 * ---------------------------------------------------------------------------- */

static uint64_t
fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Of a line and its place. The hash of a state is the combination of all its lines',
 * less those of the start. */
static uint64_t
hash_line(size_t at, const uint8_t *line)
{
    uint64_t w[8];
    uint64_t hash = (at + 1) * UINT64_C(0x9e3779b97f4a7c15);

    memcpy(w, line, sizeof(w));
    hash = fold(w[0] ^ hash, w[1] ^ UINT64_C(0xff51afd7ed558ccd)) ^
           fold(w[2] ^ hash, w[3] ^ UINT64_C(0xc4ceb9fe1a85ec53)) * 3 ^
           fold(w[4] ^ hash, w[5] ^ UINT64_C(0x8ebc6af09c88c6e3)) * 5 ^
           fold(w[6] ^ hash, w[7] ^ UINT64_C(0x589965cc75374cc3)) * 7;
    hash = fold(hash ^ at, UINT64_C(0x1d8e4e27c47d124f));
    return hash ^ hash >> 31;
}

void
arena_mark(void)
{
    find_ranges();
    memcpy(trail.shadow, model_arena.base, used_bytes());
    trail.count = 0;
    trail.hash = 0;
}

static void
note_line(size_t at)
{
    uint8_t *now = model_arena.base + at;
    uint8_t *before = trail.shadow + at;
    note *n;

    if (trail.count == trail.capacity) {
        trail.capacity = trail.capacity == 0 ? 4096 : 2 * trail.capacity;
        trail.notes = realloc(trail.notes, trail.capacity * sizeof(trail.notes[0]));
        if (trail.notes == NULL) {
            perror("realloc");
            exit(1);
        }
    }
    n = &trail.notes[trail.count++];
    n->at = at;
    n->hash = trail.hash;
    memcpy(n->old, before, ARENA_LINE);
    trail.hash ^= hash_line(at, before) ^ hash_line(at, now);
    memcpy(before, now, ARENA_LINE);
}

/* Most of the search's time goes here: no call of memcmp for 64 bytes. */
typedef uint64_t quarter __attribute__((vector_size(16)));

static bool
line_differs(const uint8_t *now, const uint8_t *before)
{
    const quarter *a = (const quarter *)(const void *)now;
    const quarter *b = (const quarter *)(const void *)before;
    quarter all = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);

    return (all[0] | all[1]) != 0;
}

static void
note_range(size_t at, size_t end)
{
    const uint8_t *now = model_arena.base;
    const uint8_t *before = trail.shadow;

    for (; at < end; at += ARENA_LINE) {
        if (line_differs(now + at, before + at)) {
            note_line(at);
        }
    }
}

uint64_t
arena_commit(int thread, uint8_t group)
{
    const arena *a = &model_arena;
    const arena_head *shadow_head = (const arena_head *)(const void *)trail.shadow;
    size_t now = offset_of((void *)(uintptr_t)a->head->threads[thread].stack);
    size_t before = offset_of((void *)(uintptr_t)shadow_head->threads[thread].stack);
    size_t low = (now < before ? now : before) / ARENA_LINE * ARENA_LINE;
    size_t end = offset_of(a->stacks) + (size_t)(thread + 1) * ARENA_STACK_BYTES;

    /* Below its end a stack is no state: always zero. */
    memset(a->base + low, 0, now - low);
    note_range(low, end);
    for (size_t i = 0; i < ranges.count; i++) {
        if (ranges.all[i].group == 0 || ranges.all[i].group == group) {
            note_range(ranges.all[i].at, ranges.all[i].end);
        }
    }
    return trail.hash;
}

bool
arena_is_committed(void)
{
    for (size_t i = 0; i < ranges.count; i++) {
        for (size_t at = ranges.all[i].at; at < ranges.all[i].end; at += ARENA_LINE) {
            if (line_differs(model_arena.base + at, trail.shadow + at)) {
                return false;
            }
        }
    }
    return true;
}

size_t
arena_notes(void)
{
    return trail.count;
}

void
arena_undo(size_t count)
{
    while (trail.count > count) {
        const note *n = &trail.notes[--trail.count];

        memcpy(model_arena.base + n->at, n->old, ARENA_LINE);
        memcpy(trail.shadow + n->at, n->old, ARENA_LINE);
        trail.hash = n->hash;
    }
}

size_t
arena_word(const void *addr)
{
    const arena *a = &model_arena;

    return (const uint8_t *)addr < a->heaps || (const uint8_t *)addr >= a->base + BYTES
               ? SIZE_MAX
               : offset_of(addr) / 4;
}
