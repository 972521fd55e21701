/* SPDX-License-Identifier: BSD-3-Clause */
/* The record: order, overwriting, and what is left of a neighbour that was killed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/record.h"
#include "support/check.h"
#include "support/ranks.h"

static void
test_order(void)
{
    tc_ring *ring = calloc(1, sizeof(*ring));
    tc_ring_entry *entries = calloc(TC_RING_ENTRIES, sizeof(*entries));
    uint64_t number = 0;

    CHECK(ring != NULL && entries != NULL);
    CHECK(tc_record_read(ring, entries, TC_RING_ENTRIES) == 0);
    for (uint64_t i = 1; i <= 3 * TC_RING_ENTRIES + 5; i++) {
        tc_ring_entry *entry = tc_ring_begin(ring, &number);

        entry->count = i;
        entry->end_tick = 0;
        entry->state = TC_RING_ISSUED;
        tc_ring_publish(entry, number);
        CHECK(number == i);
    }
    CHECK(tc_record_read(ring, entries, TC_RING_ENTRIES) == TC_RING_ENTRIES);
    CHECK(entries[0].count == 2 * TC_RING_ENTRIES + 6);
    CHECK(entries[TC_RING_ENTRIES - 1].count == 3 * TC_RING_ENTRIES + 5);
    CHECK(tc_record_read(ring, entries, 10) == 10);
    CHECK(entries[9].count == 3 * TC_RING_ENTRIES + 5);
    /* Ending one that has been overwritten changes nothing. */
    tc_ring_end(ring, 1, 1, TC_RING_FAILED);
    tc_ring_end(ring, number, 77, TC_RING_COMPLETED);
    CHECK(tc_record_read(ring, entries, TC_RING_ENTRIES) == TC_RING_ENTRIES);
    CHECK(entries[TC_RING_ENTRIES - 1].state == TC_RING_COMPLETED);
    CHECK(entries[TC_RING_ENTRIES - 1].seq == 77);
    CHECK(entries[0].state == TC_RING_ISSUED);
    /* One that is being rewritten is left out. */
    tc_ring_begin(ring, &number);
    CHECK(tc_record_read(ring, entries, TC_RING_ENTRIES) == TC_RING_ENTRIES - 1);
    free(entries);
    free(ring);
}

static char *
dump(const tc_page *page)
{
    char *text = calloc(1, 1 << 20);
    FILE *file = tmpfile();
    tc_error err;

    CHECK(text != NULL && file != NULL);
    CHECK(tc_record_dump(page, fileno(file), &err) == TC_OK);
    rewind(file);
    CHECK(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* Rank 1 is killed between two operations of the record; rank 0 reads what it did. */
static void
killed_body(tc_test_rank *self)
{
    tc_comm *comm = tc_test_comm(self, 60);
    float buf[3] = {0};
    tc_call call = {.kind = TC_OP_ALL_REDUCE,
                    .dtype = TC_FLOAT32,
                    .redop = TC_REDOP_MAX,
                    .count = 3,
                    .in = buf,
                    .out = buf};
    tc_error err;
    char *text;

    CHECK(tc_test_call(comm, &call, &err) == TC_OK);
    if (self->rank == 1) {
        raise(SIGKILL);
    }
    CHECK(tc_test_call(comm, &call, &err) == TC_ERR_PEER_DIED);
    text = dump(tc_engine_page(self->engine));
    CHECK(strstr(text, "alive, 2 operations") != NULL);
    CHECK(strstr(text, "1 all_reduce of 3 float32 with MAX") != NULL);
    CHECK(strstr(text, "collective 1: completed after") != NULL);
    CHECK(strstr(text, "collective 2: failed") != NULL);
    free(text);
    tc_comm_release(comm);
}

/* A page whose owner was killed still has its record. */
static void
test_dead_page(void)
{
    tc_engine *engine;
    tc_error err;
    int fds[2];
    int status;
    pid_t pid;
    char byte;

    /* The page is handed to the parent as its descriptor's number: a fork shares it. */
    CHECK(tc_engine_create(&engine, &err) == TC_OK);
    CHECK(pipe(fds) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        tc_page *page;
        tc_ring_entry *entry;
        uint64_t number;

        CHECK(tc_page_map(tc_engine_page_fd(engine), &page, &err) == TC_OK);
        entry = tc_ring_begin(&page->ring, &number);
        entry->kind = TC_OP_BARRIER;
        entry->state = TC_RING_ISSUED;
        entry->end_tick = 0;
        tc_ring_publish(entry, number);
        CHECK(write(fds[1], "x", 1) == 1);
        raise(SIGKILL);
    }
    CHECK(read(fds[0], &byte, 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    char *text = dump(tc_engine_page(engine));

    CHECK(strstr(text, "1 barrier of 0") != NULL && strstr(text, "in flight") != NULL);
    free(text);
    tc_engine_destroy(engine);
}

int
main(void)
{
    int statuses[2];

    test_order();
    test_dead_page();
    tc_test_run_processes(2, killed_body, NULL, statuses);
    CHECK(WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 0);
    return 0;
}
