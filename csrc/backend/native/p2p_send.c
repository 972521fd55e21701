/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side: envelopes, answers to them, and the data of granted messages. */
#include "backend/native/p2p.h"
#include "base/copy.h"
#include "base/error.h"

/* Pieces one pass copies, so that the lock is given back. */
#define PASS_PIECES 16

static bool
is_eager(const tc_p2p_part *part)
{
    return part->total <= TC_P2P_EAGER_BYTES;
}

/* Four pieces of a message overlap at both ends; 64 KiB is the best of large ones
 * (engine facts, section 2). */
static uint32_t
bulk_piece_bytes(const tc_p2p_peer *peer, uint64_t total)
{
    uint32_t slot = peer->bulk_out.slot_bytes;
    uint32_t piece = total <= 64u * 1024u    ? 16u * 1024u
                     : total <= 256u * 1024u ? 32u * 1024u
                                             : 64u * 1024u;

    return piece < slot ? piece : slot;
}

static uint32_t
whole_pages(uint64_t bytes)
{
    return (uint32_t)((bytes + TC_SHM_PAGE - 1) / TC_SHM_PAGE * TC_SHM_PAGE);
}

/* Makes the memory present that this message needs; afterwards nothing can fail. */
static tc_status
prepare(tc_native *comm, tc_p2p_peer *peer, const tc_p2p_part *part, tc_error *err)
{
    uint64_t bytes = is_eager(part) && part->total > 0 ? part->total : 1;

    TC_TRY(
        tc_shm_lane_prepare(&peer->eager_out, comm->segment, whole_pages(bytes), err));
    if (!is_eager(part)) {
        uint32_t piece = whole_pages(bulk_piece_bytes(peer, part->total));

        TC_TRY(tc_shm_lane_prepare(&peer->bulk_out, comm->segment, piece, err));
    }
    if (!peer->announced) {
        uint64_t *word =
            &tc_shm_segment_rank(comm->segment, peer->rank)->senders[comm->rank / 64];
        uint64_t bit = UINT64_C(1) << (comm->rank % 64);
        uint64_t old;

        do {
            old = tc_load_acquire_u64(word);
        } while (!tc_cas_acq_rel_u64(word, old, old | bit));
        peer->announced = true;
    }
    return TC_OK;
}

/* Envelopes ------------------------------------------------------------------------ */

static tc_p2p_offer *
free_offer(tc_p2p_peer *peer)
{
    for (int i = 0; i < TC_P2P_OFFERS; i++) {
        if (peer->offers[i].message == 0) {
            return &peer->offers[i];
        }
    }
    return NULL;
}

static void
offer(tc_p2p_peer *peer, tc_p2p_part *part)
{
    tc_p2p_offer *slot = free_offer(peer);

    *slot = (tc_p2p_offer){.message = peer->messages, .part = part};
    peer->offer_count++;
}

/* Puts the next message's envelope into the lane; false when it has to wait. A part
 * that went eagerly has ended. */
static bool
try_send(tc_native *comm, tc_p2p_peer *peer, tc_p2p_part *part)
{
    tc_shm_piece piece = {
        .total = part->total,
        .tag = part->tag,
        .dtype = part->dtype,
        .type = TC_P2P_OFFER,
        .message = peer->messages + 1,
    };
    uint8_t *slot;

    if (!is_eager(part) && peer->offer_count == TC_P2P_OFFERS) {
        return false;
    }
    slot = tc_shm_lane_reserve(&peer->eager_out);
    if (slot == NULL) {
        return false;
    }
    peer->messages++;
    if (is_eager(part)) {
        piece.type = TC_P2P_EAGER;
        piece.bytes = (uint32_t)part->total;
        tc_shm_segment_fill(comm->segment, slot, part->buf, part->total);
        tc_shm_lane_publish(&peer->eager_out, &piece);
        tc_p2p_part_end(comm, part);
    } else {
        offer(peer, part);
        tc_shm_lane_publish(&peer->eager_out, &piece);
    }
    return true;
}

/* A send to a rank that is gone is not begun: nobody would read it. */
static bool
refuse_gone(tc_native *comm, tc_p2p_part *part)
{
    char text[96];

    if (!tc_native_peer_is_gone(comm, part->peer)) {
        return false;
    }
    if (tc_p2p_has_left(comm, part->peer)) {
        tc_p2p_part_fail(
            part, TC_ERR_PEER_CLOSED, "%s: rank %d has left communicator '%s'",
            tc_p2p_part_describe(part, text, sizeof(text)), part->peer, comm->name);
        tc_p2p_part_end(comm, part);
    } else {
        tc_p2p_report_death(comm, part, part->peer);
        tc_p2p_part_end_broken(comm, part);
    }
    return true;
}

void
tc_p2p_send_post(tc_native *comm, tc_p2p_part *part)
{
    tc_p2p_peer *peer;
    tc_error err;
    char text[96];

    if (refuse_gone(comm, part)) {
        return;
    }
    if (tc_p2p_peer_get(comm, part->peer, &peer, &err) != TC_OK ||
        prepare(comm, peer, part, &err) != TC_OK) {
        tc_p2p_part_fail(part, err.status, "%s: %.300s",
                         tc_p2p_part_describe(part, text, sizeof(text)), err.message);
        tc_p2p_part_end(comm, part);
        return;
    }
    if (peer->sends.head != NULL || peer->withdrawals > 0 ||
        !try_send(comm, peer, part)) {
        tc_p2p_queue_push(&peer->sends, part);
    }
}

/* Offers --------------------------------------------------------------------------- */

static void
unmark_withdrawal(tc_p2p_peer *peer, tc_p2p_offer *o)
{
    peer->withdrawals -= o->withdraw ? 1 : 0;
    o->withdraw = false;
}

static void
close_offer(tc_native *comm, tc_p2p_peer *peer, tc_p2p_offer *o)
{
    unmark_withdrawal(peer, o);
    comm->p2p->debts -= o->part == NULL ? 1 : 0;
    *o = (tc_p2p_offer){0};
    peer->offer_count--;
}

/* Over, and with it the part it still has. */
static void
end_offer(tc_native *comm, tc_p2p_peer *peer, tc_p2p_offer *o)
{
    tc_p2p_part *part = o->part;

    close_offer(comm, peer, o);
    if (part != NULL) {
        tc_p2p_part_end(comm, part);
    }
}

void
tc_p2p_offer_abandon(tc_native *comm, tc_p2p_peer *peer, tc_p2p_offer *o)
{
    o->part = NULL;
    comm->p2p->debts++;
    if (o != peer->stream) {
        o->withdraw = true;
        peer->withdrawals++;
    }
    tc_engine_kick(comm->engine, &comm->source);
}

static tc_p2p_offer *
find_offer(tc_p2p_peer *peer, uint64_t message)
{
    for (int i = 0; message != 0 && i < TC_P2P_OFFERS; i++) {
        if (peer->offers[i].message == message) {
            return &peer->offers[i];
        }
    }
    return NULL;
}

static void
fail_refused(tc_p2p_part *part, const tc_shm_grant *answer)
{
    char mine[TC_P2P_SIZE_TEXT];
    char theirs[TC_P2P_SIZE_TEXT];

    tc_p2p_part_fail(
        part, TC_ERR_MISMATCH, "send of %s to rank %d tag %d: rank %d receives %s",
        tc_p2p_size_describe(part->total, part->dtype, mine), part->peer, part->tag,
        part->peer, tc_p2p_size_describe(answer->total, answer->dtype, theirs));
}

/* Reads the next answer; false when there is none. */
static bool
read_answer(tc_native *comm, tc_p2p_peer *peer)
{
    uint64_t number = peer->answers + 1;
    const tc_shm_grant *line =
        &tc_shm_lane_grants(&peer->eager_out)[number % TC_SHM_GRANTS];
    tc_shm_grant answer;
    tc_p2p_offer *o;

    if (tc_load_acquire_u64(&line->number) != number) {
        return false;
    }
    answer = *line;
    peer->answers = number;
    o = find_offer(peer, answer.message);
    if (o == NULL) {
        tc_native_break(comm, TC_ERR_INTERNAL, peer->rank,
                        "rank %d answered message %llu, which rank %d does not offer",
                        peer->rank, (unsigned long long)answer.message, comm->rank);
    } else if (answer.verdict == TC_P2P_GRANTED) {
        unmark_withdrawal(peer, o);
        peer->stream = o;
        peer->stream_moved = 0;
    } else {
        if (o->part != NULL) {
            fail_refused(o->part, &answer);
        }
        end_offer(comm, peer, o);
    }
    return true;
}

/* Publishes the next piece of the granted message; false when the lane is full. */
static bool
stream_piece(tc_native *comm, tc_p2p_peer *peer)
{
    tc_p2p_offer *o = peer->stream;
    tc_shm_piece piece = {.type = TC_P2P_GIVE_UP, .message = o->message};
    uint8_t *slot = tc_shm_lane_reserve(&peer->bulk_out);

    if (slot == NULL) {
        return false;
    }
    if (o->part != NULL) {
        uint64_t left = o->part->total - peer->stream_moved;

        piece.type = TC_P2P_DATA;
        piece.total = o->part->total;
        piece.bytes = bulk_piece_bytes(peer, o->part->total);
        piece.bytes = left < piece.bytes ? (uint32_t)left : piece.bytes;
        tc_shm_segment_fill(comm->segment, slot, o->part->buf + peer->stream_moved,
                            piece.bytes);
        peer->stream_moved += piece.bytes;
    }
    tc_shm_lane_publish(&peer->bulk_out, &piece);
    if (o->part == NULL || peer->stream_moved == o->part->total) {
        peer->stream = NULL;
        end_offer(comm, peer, o);
    }
    return true;
}

/* Answers and data. */
static bool
step_offers(tc_native *comm, tc_p2p_peer *peer)
{
    bool moved = false;

    for (int i = 0; i < PASS_PIECES && peer->offer_count > 0; i++) {
        if (!(peer->stream != NULL ? stream_piece(comm, peer)
                                   : read_answer(comm, peer))) {
            return moved;
        }
        moved = true;
    }
    return moved;
}

static bool
step_withdrawals(tc_p2p_peer *peer)
{
    bool moved = false;

    for (int i = 0; peer->withdrawals > 0 && i < TC_P2P_OFFERS; i++) {
        tc_p2p_offer *o = &peer->offers[i];
        tc_shm_piece piece = {.type = TC_P2P_WITHDRAW, .message = o->message};

        if (!o->withdraw) {
            continue;
        }
        if (tc_shm_lane_reserve(&peer->eager_out) == NULL) {
            return moved;
        }
        tc_shm_lane_publish(&peer->eager_out, &piece);
        unmark_withdrawal(peer, o);
        moved = true;
    }
    return moved;
}

bool
tc_p2p_send_step(tc_native *comm, tc_p2p_peer *peer)
{
    bool moved = step_offers(comm, peer);

    moved = step_withdrawals(peer) || moved;
    for (int i = 0; i < PASS_PIECES && peer->sends.head != NULL; i++) {
        tc_p2p_part *part = peer->sends.head;
        tc_p2p_part *next = part->next;

        if (peer->withdrawals > 0 || !try_send(comm, peer, part)) {
            return moved;
        }
        peer->sends.head = next;
        moved = true;
    }
    return moved;
}
