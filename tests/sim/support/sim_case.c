/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers, calls and reference results of simulated collectives. */
#include "sim/support/sim_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "support/check.h"

#define ELEM_BYTES 4u
#define GUARD_BYTES 8u
#define BACKGROUND 0xa5

uint32_t
sim_random(uint32_t *state)
{
    uint32_t x = *state += 0x9e3779b9u;

    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* What moves where ----------------------------------------------------------------- */

bool
sim_kind_uneven(tc_op_kind kind)
{
    return kind == TC_OP_ALL_GATHER_V || kind == TC_OP_REDUCE_SCATTER_V ||
           kind == TC_OP_ALL_TO_ALL || kind == TC_OP_ALL_TO_ALL_V_SINGLE ||
           kind == TC_OP_GATHER || kind == TC_OP_SCATTER;
}

bool
sim_kind_direct(tc_op_kind kind)
{
    return kind == TC_OP_ALL_REDUCE || kind == TC_OP_ALL_GATHER_SINGLE ||
           kind == TC_OP_REDUCE_SCATTER_SINGLE;
}

static bool
kind_single(tc_op_kind kind)
{
    return kind == TC_OP_ALL_GATHER_SINGLE || kind == TC_OP_REDUCE_SCATTER_SINGLE ||
           kind == TC_OP_ALL_TO_ALL_SINGLE || kind == TC_OP_GATHER_SINGLE;
}

static bool
kind_reduces(tc_op_kind kind)
{
    return kind == TC_OP_ALL_REDUCE || kind == TC_OP_REDUCE ||
           kind == TC_OP_REDUCE_SCATTER || kind == TC_OP_REDUCE_SCATTER_V ||
           kind == TC_OP_REDUCE_SCATTER_SINGLE;
}

static bool
has_blocks(const sim_case *c, int32_t r)
{
    return !tc_op_is_rooted(c->spec.kind) || r == c->spec.root;
}

static int32_t
in_block_count(const sim_case *c, int32_t r)
{
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_TENSOR:
    case TC_FORM_GATHER:
        return 1;
    case TC_FORM_SCATTER:
        return has_blocks(c, r) ? c->spec.size : 0;
    case TC_FORM_EXCHANGE:
        return c->spec.size;
    default:
        break;
    }
    return 0;
}

static int32_t
out_block_count(const sim_case *c, int32_t r)
{
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_TENSOR:
    case TC_FORM_SCATTER:
        return 1;
    case TC_FORM_GATHER:
        return has_blocks(c, r) ? c->spec.size : 0;
    case TC_FORM_EXCHANGE:
        return c->spec.size;
    default:
        break;
    }
    return 0;
}

/* `counts` row 0 holds the blocks of all forms but TC_FORM_EXCHANGE, where row r,
 * column p is what rank r has for rank p. */
static uint64_t
in_count(const sim_case *c, int32_t r, int32_t p)
{
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_GATHER:
        return c->counts[r];
    case TC_FORM_EXCHANGE:
        return c->counts[r * c->spec.size + p];
    default:
        return c->counts[p];
    }
}

static uint64_t
out_count(const sim_case *c, int32_t r, int32_t p)
{
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_SCATTER:
        return c->counts[r];
    case TC_FORM_EXCHANGE:
        return c->counts[p * c->spec.size + r];
    default:
        return c->counts[p];
    }
}

static void
choose_counts(sim_case *c)
{
    int32_t n = c->spec.size;
    uint32_t state = c->spec.seed;

    for (int32_t r = 0; r < n; r++) {
        for (int32_t p = 0; p < n; p++) {
            uint64_t count = c->spec.count;

            if (count == SIM_UNEVEN) {
                uint32_t x = sim_random(&state);

                count = x % 3 == 0 ? 0 : x / 3 % 23;
            }
            c->counts[r * n + p] = count;
            if (c->spec.in_place && r > p) {
                c->counts[r * n + p] = c->counts[p * n + r];
            }
        }
    }
}

/* Values --------------------------------------------------------------------------- */

static uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Element i of block p of rank r's input. */
static uint32_t
value(const sim_case *c, int32_t r, int32_t p, uint64_t i)
{
    uint32_t state = c->spec.seed ^ ((uint32_t)r * 0x01000193u) ^
                     ((uint32_t)p * 0x00010dcdu) ^ ((uint32_t)i * 0x3c6ef35fu);
    uint32_t x = sim_random(&state);

    if (c->dtype == TC_FLOAT32) {
        /* Of very different size, so that another order of adding gives other bits. */
        return bits_of((float)((int32_t)(x % 2001) - 1000) * (float)(1u << (x >> 28)));
    }
    return x;
}

static void
reduce_u32(void *dst, const void *const *srcs, int n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;

        for (int k = 0; k < n; k++) {
            uint32_t x;

            memcpy(&x, (const char *)srcs[k] + i * sizeof(x), sizeof(x));
            sum = sum * 31 + x;
        }
        sum = sum * 3 + (uint32_t)n;
        memcpy((char *)dst + i * sizeof(sum), &sum, sizeof(sum));
    }
}

static void
reduce_f32(void *dst, const void *const *srcs, int n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0.0f;

        for (int k = 0; k < n; k++) {
            float x;

            memcpy(&x, (const char *)srcs[k] + i * sizeof(x), sizeof(x));
            sum = k == 0 ? x : sum + x;
        }
        sum = sum * 0.5f + (float)n;
        memcpy((char *)dst + i * sizeof(sum), &sum, sizeof(sum));
    }
}

tc_run_reduce_fn
sim_case_reduce(const sim_case *c)
{
    return c->dtype == TC_FLOAT32 ? reduce_f32 : reduce_u32;
}

/* The reductions above once more, straight from the values. */
static uint32_t
reduced_value(const sim_case *c, int32_t p, uint64_t i)
{
    uint32_t sum = value(c, 0, p, i);
    float float_sum = float_of(sum);

    for (int32_t r = 1; r < c->spec.size; r++) {
        uint32_t x = value(c, r, p, i);

        sum = sum * 31 + x;
        float_sum += float_of(x);
    }
    if (c->dtype == TC_FLOAT32) {
        return bits_of(float_sum * 0.5f + (float)c->spec.size);
    }
    return sum * 3 + (uint32_t)c->spec.size;
}

/* Element i of block p of what rank r has to get. */
static uint32_t
wanted_value(const sim_case *c, int32_t r, int32_t p, uint64_t i)
{
    int32_t block = tc_op_get_form(c->spec.kind) == TC_FORM_TENSOR ? 0 : r;

    if (kind_reduces(c->spec.kind)) {
        return reduced_value(c, block, i);
    }
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_GATHER:
        return value(c, p, 0, i);
    case TC_FORM_EXCHANGE:
        return value(c, p, r, i);
    default:
        return value(c, c->spec.root, block, i);
    }
}

/* Memory --------------------------------------------------------------------------- */

static bool
shares_block(const sim_case *c, int32_t r, int32_t in_block, int32_t *out_block_p)
{
    bool rooted_elsewhere = tc_op_is_rooted(c->spec.kind) && r != c->spec.root;

    *out_block_p = in_block;
    if (c->spec.kind == TC_OP_BROADCAST) {
        return true;
    }
    if (!c->spec.in_place) {
        return false;
    }
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_GATHER:
        *out_block_p = r;
        return !rooted_elsewhere;
    case TC_FORM_SCATTER:
        *out_block_p = 0;
        return in_block == r;
    default:
        return true;
    }
}

static void
lay_out(const sim_case *c, int32_t r)
{
    sim_memory *m = &c->ranks[r];
    size_t gap = kind_single(c->spec.kind) ? 0 : GUARD_BYTES;
    int32_t shared;

    for (int32_t p = 0; p < in_block_count(c, r); p++) {
        m->in_offset[p] = m->bytes;
        m->bytes += in_count(c, r, p) * ELEM_BYTES + gap;
    }
    m->bytes += GUARD_BYTES;
    for (int32_t p = 0; p < out_block_count(c, r); p++) {
        m->out_offset[p] = m->bytes;
        m->bytes += out_count(c, r, p) * ELEM_BYTES + gap;
    }
    m->bytes += GUARD_BYTES;
    for (int32_t p = 0; p < in_block_count(c, r); p++) {
        if (!shares_block(c, r, p, &shared)) {
            continue;
        }
        if (out_block_count(c, r) == 1) {
            m->out_offset[shared] = m->in_offset[p];
        } else {
            m->in_offset[p] = m->out_offset[shared];
        }
    }
}

static void
fill(const sim_case *c, int32_t r)
{
    sim_memory *m = &c->ranks[r];
    bool gets = c->spec.kind != TC_OP_REDUCE || r == c->spec.root;

    m->data = malloc(m->bytes);
    m->want = malloc(m->bytes);
    CHECK(m->data != NULL && m->want != NULL);
    memset(m->data, BACKGROUND, m->bytes);
    for (int32_t p = 0; p < in_block_count(c, r); p++) {
        for (uint64_t i = 0; i < in_count(c, r, p); i++) {
            uint32_t x = value(c, r, p, i);

            memcpy(m->data + m->in_offset[p] + i * ELEM_BYTES, &x, ELEM_BYTES);
        }
    }
    memcpy(m->want, m->data, m->bytes);
    for (int32_t p = 0; gets && p < out_block_count(c, r); p++) {
        for (uint64_t i = 0; i < out_count(c, r, p); i++) {
            uint32_t x = wanted_value(c, r, p, i);

            memcpy(m->want + m->out_offset[p] + i * ELEM_BYTES, &x, ELEM_BYTES);
        }
    }
}

/* Empty tensors have no address. */
static void *
address(const sim_memory *m, size_t offset, uint64_t count)
{
    return count == 0 ? NULL : m->data + offset;
}

static tc_blocks
make_blocks(const sim_case *c, void **ptrs, const uint64_t *counts)
{
    if (kind_single(c->spec.kind)) {
        return (tc_blocks){.base = ptrs[0], .count = counts[0]};
    }
    if (c->spec.count != SIM_UNEVEN) {
        return (tc_blocks){.ptrs = ptrs, .count = counts[0]};
    }
    return (tc_blocks){.ptrs = ptrs, .counts = counts};
}

static void
make_call(const sim_case *c, int32_t r)
{
    sim_memory *m = &c->ranks[r];
    tc_op_form shape = tc_op_get_form(c->spec.kind);
    int32_t ins = in_block_count(c, r);
    int32_t outs = out_block_count(c, r);

    for (int32_t p = 0; p < ins; p++) {
        m->in_counts[p] = in_count(c, r, p);
        m->in_ptrs[p] = address(m, m->in_offset[p], m->in_counts[p]);
    }
    for (int32_t p = 0; p < outs; p++) {
        m->out_counts[p] = out_count(c, r, p);
        m->out_ptrs[p] = address(m, m->out_offset[p], m->out_counts[p]);
    }
    m->call = (tc_call){.kind = c->spec.kind, .dtype = c->dtype, .root = c->spec.root};
    if (shape == TC_FORM_TENSOR || shape == TC_FORM_GATHER) {
        m->call.in = m->in_ptrs[0];
        m->call.count = m->in_counts[0];
    } else if (ins > 0) {
        m->call.in_blocks = make_blocks(c, m->in_ptrs, m->in_counts);
    }
    if (shape == TC_FORM_TENSOR || shape == TC_FORM_SCATTER) {
        m->call.out = m->out_ptrs[0];
        m->call.count = m->out_counts[0];
    } else if (outs > 0) {
        m->call.out_blocks = make_blocks(c, m->out_ptrs, m->out_counts);
    }
}

sim_case *
sim_case_create(const sim_spec *spec)
{
    size_t n = (size_t)spec->size;
    sim_case *c = calloc(1, sizeof(*c));

    CHECK(c != NULL);
    c->spec = *spec;
    c->dtype = spec->seed % 2 == 0 ? TC_FLOAT32 : TC_INT32;
    c->counts = calloc(n * n, sizeof(*c->counts));
    c->ranks = calloc(n, sizeof(*c->ranks));
    c->peer_in = calloc(n, sizeof(*c->peer_in));
    c->peer_out = calloc(n, sizeof(*c->peer_out));
    CHECK(c->counts != NULL && c->ranks != NULL);
    CHECK(c->peer_in != NULL && c->peer_out != NULL);
    choose_counts(c);
    for (int32_t r = 0; r < spec->size; r++) {
        sim_memory *m = &c->ranks[r];
        /* One allocation for the six arrays, all of 8-byte entries. */
        uint64_t *arrays = calloc(6 * n, sizeof(*arrays));

        CHECK(arrays != NULL);
        m->in_counts = arrays;
        m->out_counts = arrays + n;
        m->in_offset = (size_t *)(arrays + 2 * n);
        m->out_offset = (size_t *)(arrays + 3 * n);
        m->in_ptrs = (void **)(arrays + 4 * n);
        m->out_ptrs = (void **)(arrays + 5 * n);
        lay_out(c, r);
        fill(c, r);
        make_call(c, r);
        c->peer_in[r] = m->call.in != NULL ? m->call.in : m->call.in_blocks.base;
        c->peer_out[r] = m->call.out != NULL ? m->call.out : m->call.out_blocks.base;
    }
    return c;
}

void
sim_case_destroy(sim_case *c)
{
    for (int32_t r = 0; r < c->spec.size; r++) {
        free(c->ranks[r].data);
        free(c->ranks[r].want);
        free(c->ranks[r].in_counts);
    }
    free(c->peer_in);
    free(c->peer_out);
    free(c->ranks);
    free(c->counts);
    free(c);
}

bool
sim_case_finish(sim_case *c, int32_t r)
{
    sim_memory *m = &c->ranks[r];

    for (size_t i = 0; i < m->bytes; i++) {
        if (m->data[i] != m->want[i]) {
            fprintf(stderr, "rank %d of %d: byte %zu of %zu is %02x, not %02x\n",
                    (int)r, (int)c->spec.size, i, m->bytes, (unsigned char)m->data[i],
                    (unsigned char)m->want[i]);
            return false;
        }
    }
    memset(m->data, 0x5a, m->bytes);
    return true;
}

tc_plan_shape
sim_case_shape(const sim_case *c, int32_t r)
{
    const tc_call *call = &c->ranks[r].call;

    return (tc_plan_shape){.kind = call->kind,
                           .rank = r,
                           .size = c->spec.size,
                           .root = call->root,
                           .elem_bytes = tc_dtype_size(call->dtype),
                           .count = call->count,
                           .in_blocks = &call->in_blocks,
                           .out_blocks = &call->out_blocks,
                           .direct = c->spec.direct};
}

/* Cost ----------------------------------------------------------------------------- */

/* `times` messages of `bytes`. */
static void
add_flow(sim_flow *flow, uint64_t bytes, uint64_t times, uint32_t piece_bytes)
{
    uint64_t pieces = bytes == 0 ? 1 : (bytes + piece_bytes - 1) / piece_bytes;

    flow->bytes += times * bytes;
    flow->pieces += times * pieces;
}

static void
add_all_reduce(const sim_case *c, int32_t r, uint32_t piece, sim_traffic *t)
{
    uint64_t n = (uint64_t)c->spec.size;
    uint64_t count = c->counts[0];
    uint64_t own = (count / n + ((uint64_t)r < count % n ? 1 : 0)) * ELEM_BYTES;

    for (uint64_t p = 0; p < n; p++) {
        uint64_t bytes = (count / n + (p < count % n ? 1 : 0)) * ELEM_BYTES;

        if (p != (uint64_t)r) {
            add_flow(&t->pair_out, bytes, 1, piece);
            add_flow(&t->mcast_in, bytes, 1, piece);
        }
    }
    add_flow(&t->mcast_out, own, 1, piece);
    add_flow(&t->pair_in, own, n - 1, piece);
    CHECK(t->pair_out.bytes == count * ELEM_BYTES - own);
}

static void
add_rooted(const sim_case *c, int32_t r, uint32_t piece, sim_traffic *t)
{
    uint64_t others = (uint64_t)c->spec.size - 1;
    bool is_root = r == c->spec.root;
    uint64_t bytes = c->counts[0] * ELEM_BYTES;

    switch (c->spec.kind) {
    case TC_OP_BROADCAST:
        add_flow(is_root ? &t->mcast_out : &t->mcast_in, bytes, 1, piece);
        return;
    case TC_OP_REDUCE:
        add_flow(is_root ? &t->pair_in : &t->pair_out, bytes, is_root ? others : 1,
                 piece);
        return;
    default:
        break;
    }
    for (int32_t p = 0; p < c->spec.size; p++) {
        bool scatter = c->spec.kind == TC_OP_SCATTER;

        if (is_root ? p != r : p == r) {
            add_flow(scatter == is_root ? &t->pair_out : &t->pair_in,
                     c->counts[p] * ELEM_BYTES, 1, piece);
        }
    }
}

sim_traffic
sim_case_traffic(const sim_case *c, int32_t r, uint32_t piece_bytes)
{
    sim_traffic t = {0};
    uint64_t others = (uint64_t)c->spec.size - 1;

    if (others == 0) {
        return t;
    }
    if (c->spec.direct) {
        uint64_t rounds = c->spec.kind == TC_OP_ALL_REDUCE ? 2 : 1;

        add_flow(&t.mcast_out, 0, rounds, piece_bytes);
        add_flow(&t.mcast_in, 0, rounds * others, piece_bytes);
        return t;
    }
    if (c->spec.kind == TC_OP_ALL_REDUCE) {
        add_all_reduce(c, r, piece_bytes, &t);
        return t;
    }
    if (tc_op_is_rooted(c->spec.kind)) {
        add_rooted(c, r, piece_bytes, &t);
        return t;
    }
    switch (tc_op_get_form(c->spec.kind)) {
    case TC_FORM_NONE:
        add_flow(&t.mcast_out, 0, 1, piece_bytes);
        add_flow(&t.mcast_in, 0, others, piece_bytes);
        return t;
    case TC_FORM_GATHER:
        add_flow(&t.mcast_out, in_count(c, r, 0) * ELEM_BYTES, 1, piece_bytes);
        break;
    case TC_FORM_SCATTER:
        add_flow(&t.pair_in, out_count(c, r, 0) * ELEM_BYTES, others, piece_bytes);
        break;
    default:
        break;
    }
    for (int32_t p = 0; p < c->spec.size; p++) {
        if (p == r) {
            continue;
        }
        switch (tc_op_get_form(c->spec.kind)) {
        case TC_FORM_GATHER:
            add_flow(&t.mcast_in, out_count(c, r, p) * ELEM_BYTES, 1, piece_bytes);
            break;
        case TC_FORM_SCATTER:
            add_flow(&t.pair_out, in_count(c, r, p) * ELEM_BYTES, 1, piece_bytes);
            break;
        default:
            add_flow(&t.pair_out, in_count(c, r, p) * ELEM_BYTES, 1, piece_bytes);
            add_flow(&t.pair_in, out_count(c, r, p) * ELEM_BYTES, 1, piece_bytes);
            break;
        }
    }
    return t;
}
