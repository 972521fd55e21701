/* SPDX-License-Identifier: BSD-3-Clause */
/* The text by which a leader tells its members where to find it. */
#ifndef TC_WIRE_SHM_ADDRESS_H
#define TC_WIRE_SHM_ADDRESS_H

#include "wire/startup.h"

enum {
    TC_WIRE_SOCKET_BYTES = 17, /* with the terminating zero, as all of these */
    TC_WIRE_BOOT_ID_BYTES = 37,
    TC_WIRE_HOST_ID_BYTES = 64,
    TC_WIRE_ADDRESS_BYTES = 192,
};

typedef struct tc_wire_shm_address {
    char socket[TC_WIRE_SOCKET_BYTES]; /* lower-case hexadecimal digits */
    char boot_id[TC_WIRE_BOOT_ID_BYTES]; /* "": unknown */
    char host_id[TC_WIRE_HOST_ID_BYTES]; /* "": none given */
    uint64_t net_ns; /* inode of the network namespace; 0: unknown */
    uint8_t token[TC_WIRE_TOKEN_BYTES];
} tc_wire_shm_address;

/* "shm1/<socket>/<boot id>/<namespace>/<token>/<host id>", where "-" is an unknown boot
 * id; the host id comes last because it may have slashes. Without one there is no blank
 * in it that somebody who passes it on could lose. */
void
tc_wire_shm_address_pack(const tc_wire_shm_address *address,
                         char text_p[TC_WIRE_ADDRESS_BYTES]);

/* Accepts any zero-terminated text. */
tc_status
tc_wire_shm_address_unpack(const char *text, tc_wire_shm_address *address_p,
                           tc_error *err);

#endif
