/* SPDX-License-Identifier: BSD-3-Clause */
/* The hints that every backend is given, and what is said about others. */
#include "core/hints.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { LIST_BYTES = 256 };

/* Read by new_comm and by torch's options, or by what a backend is made with: legal
 * with every backend. */
static const char *const common[] = {
    "is_high_priority_stream",
    "persistent_store",
    NULL,
};

static bool
is_in(const char *const *names, const char *key)
{
    for (; names != NULL && *names != NULL; names++) {
        if (strcmp(*names, key) == 0) {
            return true;
        }
    }
    return false;
}

/* Appends one more name to a list; what does not fit is left out. */
static void
append(char text[LIST_BYTES], const char *name)
{
    size_t used = strlen(text);

    snprintf(text + used, LIST_BYTES - used, "%s'%s'", used > 0 ? ", " : "", name);
}

static void
append_all(char text[LIST_BYTES], const char *const *names)
{
    for (; names != NULL && *names != NULL; names++) {
        append(text, *names);
    }
}

void
tc_hints_check(const tc_backend *backend, const char *comm_name, const tc_hint *hints,
               size_t count)
{
    char unknown[LIST_BYTES] = "", known[LIST_BYTES] = "";

    for (size_t i = 0; i < count; i++) {
        if (!is_in(backend->hints, hints[i].key) && !is_in(common, hints[i].key)) {
            append(unknown, hints[i].key);
        }
    }
    if (unknown[0] == '\0') {
        return;
    }
    append_all(known, backend->hints);
    append_all(known, common);
    TC_LOG(CORE, WARN,
           "communicator '%s': hints that backend %s does not know are ignored: %s; it "
           "knows %s",
           comm_name, backend->name, unknown, known);
}
