/* SPDX-License-Identifier: BSD-3-Clause */
/* Depth-first search over all states of a model. */
#include "model/support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/support/arena.h"
#include "model/support/threads.h"

/* Random runs that find out what is shared and what changes, before the search. */
enum { WALKS = 300, WALK_STEPS = 20000, LEARN_EVERY = 16, RESTARTS = 1000 };

typedef struct seen {
    uint64_t hash;
    double paths; /* -1 while the search is below it */
} seen;

/* A state on the way from the start to where the search is. */
typedef struct frame {
    size_t notes; /* of the arena, before the move that led here */
    uint64_t hash;
    double paths;
    uint32_t count;
    uint32_t next;
    model_move moves[MODEL_MOVES];
} frame;

static struct {
    seen *table;
    size_t mask;
    size_t used;
    frame *frames;
    size_t frame_count;
    size_t depth;
} search;

static void
need(const void *at)
{
    if (at == NULL) {
        perror("memory of the model");
        exit(1);
    }
}

/* States met -------------------------------------------------------------------------
 */

static seen *
slot_of(uint64_t hash)
{
    size_t i = hash & search.mask;

    while (search.table[i].hash != 0 && search.table[i].hash != hash) {
        i = (i + 1) & search.mask;
    }
    return &search.table[i];
}

static void
grow_table(size_t entries)
{
    seen *old = search.table;
    size_t count = old == NULL ? 0 : search.mask + 1;

    search.table = calloc(entries, sizeof(search.table[0]));
    need(search.table);
    search.mask = entries - 1;
    for (size_t i = 0; i < count; i++) {
        if (old[i].hash != 0) {
            *slot_of(old[i].hash) = old[i];
        }
    }
    free(old);
}

static void
forget_states(void)
{
    free(search.table);
    search.table = NULL;
    grow_table((size_t)1 << 16);
    search.used = 0;
}

static void
add_state(uint64_t hash)
{
    if (search.used * 4 > search.mask * 3) {
        grow_table((search.mask + 1) * 2);
    }
    *slot_of(hash) = (seen){hash, -1};
    search.used++;
}

/* Reports
 * ------------------------------------------------------------------------------ */

static void
add_trace(model_report *report, uint32_t number, const model_move *move)
{
    size_t used = strlen(report->trace);
    char text[200];

    threads_describe(move, text, sizeof(text));
    snprintf(report->trace + used, sizeof(report->trace) - used, "%5u  %s\n", number,
             text);
}

static void
report_failure(model_report *report)
{
    report->failed = true;
    snprintf(report->message, sizeof(report->message), "%s", threads_mode.message);
    for (size_t i = 0; i < search.depth; i++) {
        const frame *f = &search.frames[i];

        add_trace(report, (uint32_t)i + 1, &f->moves[f->next - 1]);
    }
}

/* Nobody can move: an ending, or a deadlock. */
static void
check_end(const model_case *c)
{
    char text[400];

    if (!threads_have_ended()) {
        threads_describe_all(text, sizeof(text));
        model_fail("nobody can go on: %s", text);
    } else if (c->at_end != NULL) {
        c->at_end(c->ctx);
    }
}

/* Runs at random
 * ----------------------------------------------------------------------- */

static uint32_t
random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % n);
}

static frame *
frame_at(size_t depth)
{
    if (depth >= search.frame_count) {
        size_t count = search.frame_count == 0 ? 1024 : 2 * search.frame_count;

        search.frames = realloc(search.frames, count * sizeof(search.frames[0]));
        need(search.frames);
        memset(search.frames + search.frame_count, 0,
               (count - search.frame_count) * sizeof(search.frames[0]));
        search.frame_count = count;
    }
    return &search.frames[depth];
}

/* One run from the start, with the moves in `frames` for a trace. */
static void
walk(const model_case *c, uint64_t *seed, bool learn, model_report *report)
{
    /* While learning, polls that find nothing go on and on. */
    size_t limit = learn ? WALK_STEPS : SIZE_MAX;
    /* Some runs favour one thread, so that others fall far behind. */
    uint32_t favour = random_below(seed, 4);

    arena_rewind();
    for (search.depth = 0; !threads_mode.failed && search.depth < limit;
         search.depth++) {
        frame *f = frame_at(search.depth);
        uint32_t pick;

        f->count = threads_moves(f->moves);
        if (f->count == 0) {
            check_end(c);
            report->endings++;
            break;
        }
        pick = random_below(seed, f->count);
        if (favour > 1 && random_below(seed, 8) > 0) {
            pick = favour == 2 ? 0 : f->count - 1;
        }
        f->next = 1;
        f->moves[0] = f->moves[pick];
        threads_do(&f->moves[0]);
        report->steps++;
        if (learn && search.depth % LEARN_EVERY == 0) {
            arena_learn();
        }
    }
    if (learn) {
        arena_learn();
    }
}

/* The search
 * ----------------------------------------------------------------------------- */

/* The state as a new frame, unless it was met; true when there is one. */
static bool
push_state(const model_case *c, model_report *report, uint64_t hash, size_t notes,
           double *paths_p)
{
    frame *f = frame_at(search.depth);
    seen *known;

    f->hash = hash == 0 ? 1 : hash;
    f->notes = notes;
    known = slot_of(f->hash);
    if (known->hash != 0) {
        *paths_p = known->paths < 0 ? 0 : known->paths;
        return false;
    }
    add_state(f->hash);
    f->count = threads_moves(f->moves);
    f->next = 0;
    f->paths = 0;
    if (f->count == 0) {
        check_end(c);
        report->endings++;
        f->paths = 1;
    }
    return true;
}

/* Back to the frame below, to which the paths of this one count. */
static void
pop_state(void)
{
    const frame *f = &search.frames[search.depth];

    slot_of(f->hash)->paths = f->paths;
    arena_undo(f->notes);
    if (search.depth > 0) {
        search.frames[search.depth - 1].paths += f->paths;
        search.depth--;
    } else {
        search.depth = SIZE_MAX;
    }
}

/* The next move of the uppermost state. */
static void
try_move(const model_case *c, model_report *report)
{
    frame *f = &search.frames[search.depth];
    const model_move *move = &f->moves[f->next++];
    size_t notes = arena_notes();
    int thread = move->thread;
    double paths = 0;

    threads_do(move);
    report->steps++;
    search.depth++;
    if (threads_mode.failed) {
        return;
    }
    if (!push_state(c, report, arena_commit(thread, threads_group(thread)), notes,
                    &paths)) {
        arena_undo(notes);
        search.depth--;
        search.frames[search.depth].paths += paths;
    }
}

/* All states from the start; false when a surprise makes it begin again. */
static bool
search_all(const model_case *c, model_report *report)
{
    uint64_t max_states = c->max_states > 0 ? c->max_states : MODEL_STATES;
    double paths = 0;

    forget_states();
    arena_rewind();
    arena_mark();
    search.depth = 0;
    (void)push_state(c, report, 0, 0, &paths);
    while (search.depth != SIZE_MAX && !threads_mode.failed) {
        if (search.frames[search.depth].next == search.frames[search.depth].count) {
            pop_state();
            continue;
        }
        try_move(c, report);
        if (report->steps % 4096 == 0 && !threads_mode.failed &&
            !arena_is_committed()) {
            model_fail("a thread has written to memory of another group");
        }
        if (threads_mode.surprised || (report->steps % 4096 == 0 && arena_learn())) {
            threads_mode.failed = false;
            return false;
        }
        if (search.used >= max_states) {
            report->complete = false;
            break;
        }
    }
    report->states = search.used;
    report->interleavings = search.frames[0].paths;
    if (arena_learn()) {
        /* What was found may come from a state that was not restored as a whole. */
        threads_mode.failed = false;
        return false;
    }
    return true;
}

static void
explore(const model_case *c, model_report *report)
{
    for (int i = 0; i < RESTARTS; i++) {
        threads_mode.surprised = false;
        report->steps = 0;
        report->endings = 0;
        report->complete = true;
        if (search_all(c, report)) {
            return;
        }
    }
    model_fail("what is shared is still not known");
}

/* Random runs, begun again when one of them teaches what is shared. */
static void
sample(const model_case *c, uint64_t *seed, model_report *report)
{
    for (uint64_t i = 0; i < c->samples && !threads_mode.failed; i++) {
        walk(c, seed, false, report);
    }
}

static void
build(const model_case *c)
{
    arena_clear();
    threads_clear();
    threads_mode = (model_mode){.store_buffers = c->store_buffers,
                                .fine = c->fine,
                                .preemptions = c->preemptions};
    threads_set_building(true);
    c->build(c->ctx);
    threads_set_building(false);
    arena_begin();
}

void
model_run(const model_case *c, model_report *report_p)
{
    uint64_t seed = 1;

    memset(report_p, 0, sizeof(*report_p));
    build(c);
    threads_mode.learning = true;
    for (int i = 0; i < WALKS && !threads_mode.failed; i++) {
        walk(c, &seed, true, report_p);
    }
    threads_mode.learning = false;
    if (threads_mode.failed) {
        /* found already */
    } else if (c->samples == 0) {
        explore(c, report_p);
    } else {
        sample(c, &seed, report_p);
    }
    if (threads_mode.failed) {
        report_failure(report_p);
    }
    if (getenv("TC_MODEL_LIST") != NULL) {
        threads_list_shared();
    }
}

/* For tests
 * ------------------------------------------------------------------------------ */

static void
print_report(const model_case *c, const model_report *r)
{
    if (r->failed) {
        printf("%s: after %llu steps: %s\n", c->name, (unsigned long long)r->steps,
               r->message);
    } else if (c->samples > 0) {
        printf("%s: %llu random runs, %llu steps, no fault\n", c->name,
               (unsigned long long)r->endings, (unsigned long long)r->steps);
    } else {
        printf("%s: %llu states, %llu steps, %.3g interleavings%s, no fault\n", c->name,
               (unsigned long long)r->states, (unsigned long long)r->steps,
               r->interleavings, r->complete ? "" : " (cut short)");
    }
    fflush(stdout);
}

static model_report shown;

void
model_expect_none(const model_case *c)
{
    model_run(c, &shown);
    print_report(c, &shown);
    if (shown.failed) {
        fprintf(stderr, "%s%s: %s\n", shown.trace, c->name, shown.message);
        exit(1);
    }
}

void
model_expect_fault(const model_case *c, const char *text)
{
    model_run(c, &shown);
    print_report(c, &shown);
    if (!shown.failed || strstr(shown.message, text) == NULL) {
        fprintf(stderr, "%s: the planted fault was not found, expected '%s'\n", c->name,
                text);
        exit(1);
    }
}

bool
model_is_full(int argc, char **argv)
{
    const char *full = getenv("TC_MODEL_FULL");

    return (argc > 1 && strcmp(argv[1], "full") == 0) || full != NULL;
}
