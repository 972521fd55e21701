/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages by which the ranks of one host hand each other descriptors. */
#ifndef TC_WIRE_STARTUP_H
#define TC_WIRE_STARTUP_H

#include "torchcomms/types.h"

/* member to leader: hello (+ its page); leader to member: welcome (+ the segment),
 * pages
 * (+ descriptors) until all were sent; member to leader: verdict; leader to member:
 * verdict. A verdict with an error may come instead of any of them and is the last. */
typedef enum tc_wire_kind {
    TC_WIRE_FOREIGN = 0, /* not a message of ours */
    TC_WIRE_HELLO = 1,
    TC_WIRE_WELCOME = 2,
    TC_WIRE_PAGES = 3,
    TC_WIRE_VERDICT = 4,
} tc_wire_kind;

enum {
    TC_WIRE_VERSION = 2,
    TC_WIRE_TOKEN_BYTES = 16,
    TC_WIRE_TEXT_BYTES = 508, /* with the terminating zero */
    TC_WIRE_MESSAGE_BYTES = 576, /* no message is longer */
};

typedef struct tc_wire_hello {
    uint8_t token[TC_WIRE_TOKEN_BYTES];
    int32_t rank;
    int32_t size;
    int32_t pid;
    uint64_t generation; /* of the members: the uuid of a reconfigure */
    uint64_t digest; /* of who they are, in their order; 0: any */
} tc_wire_hello;

typedef struct tc_wire_welcome {
    int32_t size;
    uint64_t bytes; /* of the segment */
} tc_wire_welcome;

typedef struct tc_wire_pages {
    int32_t first; /* rank of the first page */
    int32_t count;
} tc_wire_pages;

typedef struct tc_wire_verdict {
    tc_status status;
    int32_t rank; /* who says it */
    char text[TC_WIRE_TEXT_BYTES];
} tc_wire_verdict;

/* What the first bytes say; the message may still be damaged. */
tc_wire_kind
tc_wire_kind_of(const void *bytes, size_t n);

/* Write at most TC_WIRE_MESSAGE_BYTES and return how many. */
size_t
tc_wire_hello_pack(const tc_wire_hello *hello, uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES]);

size_t
tc_wire_welcome_pack(const tc_wire_welcome *welcome,
                     uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES]);

size_t
tc_wire_pages_pack(const tc_wire_pages *pages, uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES]);

size_t
tc_wire_verdict_pack(const tc_wire_verdict *verdict,
                     uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES]);

/* Accept any bytes. Another version, kind or length is TC_ERR_MISMATCH; so are numbers
 * that can never be right, like a rank outside the size beside it. */
tc_status
tc_wire_hello_unpack(const void *bytes, size_t n, tc_wire_hello *hello_p,
                     tc_error *err);

tc_status
tc_wire_welcome_unpack(const void *bytes, size_t n, tc_wire_welcome *welcome_p,
                       tc_error *err);

tc_status
tc_wire_pages_unpack(const void *bytes, size_t n, tc_wire_pages *pages_p,
                     tc_error *err);

/* The text is printable and terminated; a status that we do not know becomes
 * TC_ERR_INTERNAL. */
tc_status
tc_wire_verdict_unpack(const void *bytes, size_t n, tc_wire_verdict *verdict_p,
                       tc_error *err);

#endif
