/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of backends and the defaults that complete their tables. */
#include "core/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"

enum { MAX_ENTRIES = 64, MAX_NAME = 64, NAME_LIST = 256 };

typedef struct entry {
    char name[MAX_NAME];
    tc_backend backend;
} entry;

/* Invariant: entries below `entry_count` never change again. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry entries[MAX_ENTRIES];
static int entry_count;

static tc_status
issue_unsupported(void *comm, tc_op *op)
{
    (void)comm;
    return tc_error_set(op->error, TC_ERR_UNSUPPORTED,
                        "%s not implemented for communicator",
                        tc_op_name(op->call.kind));
}

static tc_status
create_unsupported(const tc_comm_config *config, void **comm_p, tc_error *err)
{
    (void)config;
    (void)comm_p;
    return tc_error_set(err, TC_ERR_UNSUPPORTED, "backend cannot make communicators");
}

static tc_status
finalize_nothing(void *comm, tc_error *err)
{
    (void)comm;
    (void)err;
    return TC_OK;
}

static void
comm_nothing(void *comm)
{
    (void)comm;
}

static tc_status
progress_nothing(void *comm, uint64_t now_ns)
{
    (void)comm;
    (void)now_ns;
    return TC_PENDING;
}

static void
parking_none(void *comm, tc_parking *parking)
{
    (void)comm;
    *parking = (tc_parking){.spins = 100, .yields = 100};
}

static void
op_nothing(void *comm, tc_op *op)
{
    (void)comm;
    (void)op;
}

static tc_status
check_nothing(void *comm, const tc_call *call, tc_error *err)
{
    (void)comm;
    (void)call;
    (void)err;
    return TC_OK;
}

static const tc_backend defaults = {
    .struct_size = sizeof(tc_backend),
    .abi = TC_BACKEND_ABI,
    .name = "",
    .version = NULL,
    .device_type = TC_DEVICE_ANY,
    .comm_create = create_unsupported,
    .comm_finalize = finalize_nothing,
    .comm_destroy = comm_nothing,
    .comm_abort = NULL,
    .progress = progress_nothing,
    .parking = parking_none,
    .detach = op_nothing,
    .check = check_nothing,
};

/* Lays the given table over the defaults. `comm_abort`, `split_begin`, `split_end`,
 * `memory_alloc` and those of reconfigure stay NULL where they are missing: the core
 * answers "is it supported" from that. */
static void
complete_table(const tc_backend *given, tc_backend *full_p)
{
    size_t size = given->struct_size < sizeof(tc_backend) ? given->struct_size
                                                          : sizeof(tc_backend);
    tc_backend table = {0};

    memcpy(&table, given, size);
    *full_p = defaults;
    full_p->name = table.name;
    full_p->version = table.version;
    full_p->device_type = table.device_type;
    full_p->comm_abort = table.comm_abort;
    full_p->flags = table.flags;
    full_p->hints = table.hints;
#define TAKE(member) \
    if (table.member != NULL) { \
        full_p->member = table.member; \
    }
    TAKE(comm_create)
    TAKE(split_begin)
    TAKE(split_end)
    TAKE(comm_finalize)
    TAKE(comm_destroy)
    TAKE(progress)
    TAKE(parking)
    TAKE(detach)
    TAKE(memory_alloc)
    TAKE(check)
    TAKE(comm_revoke)
    TAKE(comm_is_broken)
    TAKE(endpoint_open)
    TAKE(endpoint_close)
    TAKE(endpoint_check)
    TAKE(reconfigure)
#undef TAKE
    for (size_t k = 0; k < sizeof(table.issue) / sizeof(table.issue[0]); k++) {
        full_p->issue[k] = table.issue[k] != NULL ? table.issue[k] : issue_unsupported;
    }
}

static entry *
find_locked(const char *name, tc_device_type device)
{
    for (int i = 0; i < entry_count; i++) {
        tc_device_type type = entries[i].backend.device_type;

        if (strcmp(entries[i].name, name) == 0 &&
            (type == device || type == TC_DEVICE_ANY)) {
            return &entries[i];
        }
    }
    return NULL;
}

tc_status
tc_registry_add(const char *name, const tc_backend *backend, tc_error *err)
{
    tc_status status = TC_OK;

    if (backend->abi != TC_BACKEND_ABI) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "backend '%s' speaks ABI %u, this core %u", name,
                            backend->abi, TC_BACKEND_ABI);
    }
    if (strlen(name) >= MAX_NAME) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "backend name of %zu bytes, at most %d", strlen(name),
                            MAX_NAME - 1);
    }
    pthread_mutex_lock(&lock);
    if (find_locked(name, backend->device_type) == NULL) {
        if (entry_count == MAX_ENTRIES) {
            status =
                tc_error_set(err, TC_ERR_NO_MEMORY, "backend '%s' is one more than %d",
                             name, MAX_ENTRIES);
        } else {
            strcpy(entries[entry_count].name, name);
            complete_table(backend, &entries[entry_count].backend);
            entry_count++;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void
list_names_locked(char *text, size_t capacity)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < entry_count && used < capacity; i++) {
        int n = snprintf(text + used, capacity - used, "%s%s", i > 0 ? ", " : "",
                         entries[i].name);

        used += n > 0 ? (size_t)n : 0;
    }
}

static const char *
device_name(tc_device_type device)
{
    static const char *const names[] = {
        [TC_DEVICE_CPU] = "cpu",
        [TC_DEVICE_CUDA] = "cuda",
        [TC_DEVICE_HIP] = "hip",
        [TC_DEVICE_XPU] = "xpu",
    };
    size_t i = (size_t)device;

    return i < sizeof(names) / sizeof(names[0]) ? names[i] : "any";
}

tc_status
tc_registry_find(const char *name, tc_device_type device, const tc_backend **backend_p,
                 tc_error *err)
{
    entry *found;
    char names[NAME_LIST];

    pthread_mutex_lock(&lock);
    found = find_locked(name, device);
    list_names_locked(names, sizeof(names));
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                            "no backend '%s' for device type %s; known: %s", name,
                            device_name(device), names);
    }
    *backend_p = &found->backend;
    return TC_OK;
}

bool
tc_registry_has(const char *name)
{
    bool has = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < entry_count; i++) {
        has = has || strcmp(entries[i].name, name) == 0;
    }
    pthread_mutex_unlock(&lock);
    return has;
}

bool
tc_registry_is_solitary(const char *name)
{
    bool has = false, solitary = true;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < entry_count; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            has = true;
            solitary =
                solitary && (entries[i].backend.flags & TC_BACKEND_SOLITARY) != 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return has && solitary;
}
