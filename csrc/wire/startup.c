/* SPDX-License-Identifier: BSD-3-Clause */
/* Packing and unpacking of the start-up messages. */
#include "wire/startup.h"

#include "base/error.h"
#include "wire/bytes.h"

#define STARTUP_MAGIC 0x73736374u /* "tcss" */
#define HEADER_BYTES 8u

static tc_wire_writer
begin(tc_wire_kind kind, uint8_t *bytes)
{
    tc_wire_writer w = {bytes, TC_WIRE_MESSAGE_BYTES, 0, true};

    tc_wire_put_u32(&w, STARTUP_MAGIC);
    tc_wire_put_u16(&w, TC_WIRE_VERSION);
    tc_wire_put_u16(&w, (uint16_t)kind);
    return w;
}

tc_wire_kind
tc_wire_kind_of(const void *bytes, size_t n)
{
    tc_wire_reader r = {bytes, n, 0, true};
    uint32_t magic = tc_wire_get_u32(&r);
    uint16_t kind;

    tc_wire_get_u16(&r);
    kind = tc_wire_get_u16(&r);
    if (!r.ok || magic != STARTUP_MAGIC || kind > TC_WIRE_VERDICT) {
        return TC_WIRE_FOREIGN;
    }
    return (tc_wire_kind)kind;
}

static tc_status
open_message(tc_wire_reader *r, tc_wire_kind kind, tc_error *err)
{
    uint32_t magic = tc_wire_get_u32(r);
    uint16_t version = tc_wire_get_u16(r);
    uint16_t found = tc_wire_get_u16(r);

    if (!r->ok || magic != STARTUP_MAGIC) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "not a start-up message of torchcomms (%zu bytes)",
                            r->size);
    }
    if (version != TC_WIRE_VERSION) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "start-up message of version %u, this is version %d: the "
                            "ranks run different releases of torchcomms",
                            version, TC_WIRE_VERSION);
    }
    if (found != kind) {
        return tc_error_set(err, TC_ERR_MISMATCH,
                            "start-up message of kind %u where %d was due", found,
                            (int)kind);
    }
    return TC_OK;
}

static tc_status
damaged(const char *what, size_t n, tc_error *err)
{
    return tc_error_set(err, TC_ERR_MISMATCH, "damaged %s message of %zu bytes", what,
                        n);
}

size_t
tc_wire_hello_pack(const tc_wire_hello *hello, uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES])
{
    tc_wire_writer w = begin(TC_WIRE_HELLO, bytes_p);

    tc_wire_put_bytes(&w, hello->token, sizeof(hello->token));
    tc_wire_put_i32(&w, hello->rank);
    tc_wire_put_i32(&w, hello->size);
    tc_wire_put_i32(&w, hello->pid);
    tc_wire_put_u64(&w, hello->generation);
    tc_wire_put_u64(&w, hello->digest);
    return w.at;
}

tc_status
tc_wire_hello_unpack(const void *bytes, size_t n, tc_wire_hello *hello_p, tc_error *err)
{
    tc_wire_reader r = {bytes, n, 0, true};
    tc_wire_hello hello;

    TC_TRY(open_message(&r, TC_WIRE_HELLO, err));
    tc_wire_get_bytes(&r, sizeof(hello.token), hello.token);
    hello.rank = tc_wire_get_i32(&r);
    hello.size = tc_wire_get_i32(&r);
    hello.pid = tc_wire_get_i32(&r);
    hello.generation = tc_wire_get_u64(&r);
    hello.digest = tc_wire_get_u64(&r);
    if (!tc_wire_reader_is_done(&r)) {
        return damaged("hello", n, err);
    }
    if (hello.rank < 0 || hello.rank >= hello.size) {
        return tc_error_set(err, TC_ERR_MISMATCH, "hello from rank %d of %d",
                            hello.rank, hello.size);
    }
    *hello_p = hello;
    return TC_OK;
}

size_t
tc_wire_welcome_pack(const tc_wire_welcome *welcome,
                     uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES])
{
    tc_wire_writer w = begin(TC_WIRE_WELCOME, bytes_p);

    tc_wire_put_i32(&w, welcome->size);
    tc_wire_put_u64(&w, welcome->bytes);
    return w.at;
}

tc_status
tc_wire_welcome_unpack(const void *bytes, size_t n, tc_wire_welcome *welcome_p,
                       tc_error *err)
{
    tc_wire_reader r = {bytes, n, 0, true};
    tc_wire_welcome welcome;

    TC_TRY(open_message(&r, TC_WIRE_WELCOME, err));
    welcome.size = tc_wire_get_i32(&r);
    welcome.bytes = tc_wire_get_u64(&r);
    if (!tc_wire_reader_is_done(&r) || welcome.size < 1) {
        return damaged("welcome", n, err);
    }
    *welcome_p = welcome;
    return TC_OK;
}

size_t
tc_wire_pages_pack(const tc_wire_pages *pages, uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES])
{
    tc_wire_writer w = begin(TC_WIRE_PAGES, bytes_p);

    tc_wire_put_i32(&w, pages->first);
    tc_wire_put_i32(&w, pages->count);
    return w.at;
}

tc_status
tc_wire_pages_unpack(const void *bytes, size_t n, tc_wire_pages *pages_p, tc_error *err)
{
    tc_wire_reader r = {bytes, n, 0, true};
    tc_wire_pages pages;

    TC_TRY(open_message(&r, TC_WIRE_PAGES, err));
    pages.first = tc_wire_get_i32(&r);
    pages.count = tc_wire_get_i32(&r);
    if (!tc_wire_reader_is_done(&r) || pages.first < 0 || pages.count < 1 ||
        pages.count > INT32_MAX - pages.first) {
        return damaged("pages", n, err);
    }
    *pages_p = pages;
    return TC_OK;
}

size_t
tc_wire_verdict_pack(const tc_wire_verdict *verdict,
                     uint8_t bytes_p[TC_WIRE_MESSAGE_BYTES])
{
    tc_wire_writer w = begin(TC_WIRE_VERDICT, bytes_p);
    size_t length = strnlen(verdict->text, sizeof(verdict->text) - 1);

    tc_wire_put_i32(&w, verdict->status);
    tc_wire_put_i32(&w, verdict->rank);
    tc_wire_put_u16(&w, (uint16_t)length);
    tc_wire_put_bytes(&w, verdict->text, length);
    return w.at;
}

static tc_status
known_status(int32_t number)
{
    return number == TC_OK ||
                   (number <= TC_ERR_INVALID_ARGUMENT && number >= TC_ERR_INTERNAL)
               ? (tc_status)number
               : TC_ERR_INTERNAL;
}

tc_status
tc_wire_verdict_unpack(const void *bytes, size_t n, tc_wire_verdict *verdict_p,
                       tc_error *err)
{
    tc_wire_reader r = {bytes, n, 0, true};
    tc_wire_verdict verdict;
    uint16_t length;

    TC_TRY(open_message(&r, TC_WIRE_VERDICT, err));
    verdict.status = known_status(tc_wire_get_i32(&r));
    verdict.rank = tc_wire_get_i32(&r);
    length = tc_wire_get_u16(&r);
    if (!r.ok || length >= sizeof(verdict.text)) {
        return damaged("verdict", n, err);
    }
    tc_wire_get_bytes(&r, length, verdict.text);
    verdict.text[length] = '\0';
    if (!tc_wire_reader_is_done(&r)) {
        return damaged("verdict", n, err);
    }
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)verdict.text[i] < 0x20 || verdict.text[i] == 0x7f) {
            verdict.text[i] = '?';
        }
    }
    *verdict_p = verdict;
    return TC_OK;
}
