/* SPDX-License-Identifier: BSD-3-Clause */
/* Boot id, host id and network namespace of this process. */
#include "transport/shm/identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"

static void
read_boot_id(char boot_id_p[TC_WIRE_BOOT_ID_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    boot_id_p[0] = '\0';
    if (fd < 0) {
        return;
    }
    n = read(fd, boot_id_p, TC_WIRE_BOOT_ID_BYTES - 1);
    close(fd);
    boot_id_p[n > 0 ? n : 0] = '\0';
    boot_id_p[strspn(boot_id_p, "0123456789abcdef-")] = '\0';
}

tc_status
tc_shm_identity_read(tc_wire_shm_address *address_p, tc_error *err)
{
    struct stat st;

    TC_TRY(tc_option_string(TC_OPT_HOST_ID, sizeof(address_p->host_id),
                            address_p->host_id, err));
    for (const char *c = address_p->host_id; *c != '\0'; c++) {
        if ((uint8_t)*c < 0x20 || *c == 0x7f) {
            return tc_error_set(err, TC_ERR_INVALID_ARGUMENT,
                                "%s has the control character 0x%02x",
                                tc_option_variable(TC_OPT_HOST_ID), (uint8_t)*c);
        }
    }
    read_boot_id(address_p->boot_id);
    address_p->net_ns = stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0;
    return TC_OK;
}

/* An unknown boot id decides nothing: connecting does. */
static bool
is_same_boot(const char *a, const char *b)
{
    return a[0] == '\0' || b[0] == '\0' || strcmp(a, b) == 0;
}

/* "'node-7' (boot id 1b9d…)", without what is not known. */
static void
describe(const tc_wire_shm_address *a, size_t capacity, char *text_p)
{
    snprintf(text_p, capacity, "'%s' (boot id %s)", a->host_id,
             a->boot_id[0] != '\0' ? a->boot_id : "unknown");
}

tc_status
tc_shm_identity_check(const tc_wire_shm_address *leader, const tc_wire_shm_address *own,
                      int32_t rank, tc_error *err)
{
    char here[128];
    char there[128];

    if (is_same_boot(leader->boot_id, own->boot_id) &&
        strcmp(leader->host_id, own->host_id) == 0) {
        return TC_OK;
    }
    describe(own, sizeof(here), here);
    describe(leader, sizeof(there), there);
    return tc_error_set(err, TC_ERR_UNSUPPORTED,
                        "rank %d is on host %s, rank 0 on host %s: communicators that "
                        "span hosts are not built yet",
                        rank, here, there);
}
