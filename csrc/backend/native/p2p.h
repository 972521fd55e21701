/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point inside the native engine: parts, peers, and who moves what. */
#ifndef TC_NATIVE_P2P_H
#define TC_NATIVE_P2P_H

#include "backend/native/state.h"

enum {
    /* Up to here a message travels with its envelope: a slot of the eager lane. */
    TC_P2P_EAGER_BYTES = 16 * 1024,
    /* Offers of a sender to one peer that are not over; the rest waits in its queue. */
    TC_P2P_OFFERS = TC_SHM_GRANTS,
    /* Granted messages that have not all arrived: the peer's unfinished offers and what
     * it has finished but still lies in the slots of its bulk lane. */
    TC_P2P_INCOMING = 2 * TC_P2P_OFFERS,
    /* What is kept per peer of messages that nobody has asked for yet. */
    TC_P2P_KEPT_BYTES = 1024 * 1024,
    TC_P2P_KEPT_MESSAGES = 4096,
};

/* `type` of a piece. On the eager lane: */
typedef enum tc_p2p_piece {
    TC_P2P_EAGER = 1, /* a whole message */
    TC_P2P_OFFER, /* the envelope of a large one */
    TC_P2P_WITHDRAW, /* the offer's send has ended: no data will come */
    /* on the bulk lane, messages in the order of the grants: */
    TC_P2P_DATA,
    TC_P2P_GIVE_UP, /* of a granted message no more will come */
} tc_p2p_piece;

/* The one answer to an offer. */
typedef enum tc_p2p_verdict {
    TC_P2P_GRANTED = 1,
    TC_P2P_REFUSED, /* the matching recv wants something else */
    TC_P2P_WITHDRAWN, /* taken note that no data will come */
} tc_p2p_verdict;

/* One send or recv: the whole of an operation, or an entry of a batch. It is in exactly
 * one of: peer.sends, peer.offers, peer.recvs, state.any, peer.incoming; or it has
 * ended. */
typedef struct tc_p2p_part {
    struct tc_p2p_part *next;
    tc_op *op;
    uint8_t *buf;
    uint64_t total; /* bytes */
    uint64_t order; /* recv: counts the posted recvs of this rank */
    int32_t peer; /* TC_ANY_SOURCE until it is matched */
    int32_t tag;
    uint8_t kind; /* tc_op_kind */
    uint8_t dtype;
} tc_p2p_part;

/* The engine's part of a send, recv or batch, in the op's `state`. The operation ends
 * with its last part; the first error is its own. */
typedef struct tc_p2p_op {
    tc_native_op base;
    uint64_t left; /* parts that have not ended */
    tc_p2p_part *parts; /* batch: an array, else NULL */
    tc_p2p_part one;
    tc_status status;
} tc_p2p_op;

_Static_assert(sizeof(tc_p2p_op) <= TC_OP_STATE_BYTES, "fits the op's state");

typedef struct tc_p2p_queue {
    tc_p2p_part *head;
    tc_p2p_part *tail;
} tc_p2p_queue;

/* A large message between its envelope and its last piece, at the sender. Invariant: an
 * offer is over when its answer has been read and, if that was a grant, its last piece
 * or a give-up has been published. */
typedef struct tc_p2p_offer {
    uint64_t message; /* 0: free */
    tc_p2p_part *part; /* NULL: its send has ended */
    bool withdraw; /* the peer has to be told */
} tc_p2p_offer;

/* A granted message at the receiver. */
typedef struct tc_p2p_incoming {
    uint64_t message;
    uint64_t total;
    uint64_t moved;
    tc_p2p_part *part; /* NULL: its recv has ended, the data is discarded */
} tc_p2p_incoming;

/* A message that came before its recv. */
typedef struct tc_p2p_kept {
    struct tc_p2p_kept *next;
    uint64_t arrival; /* counts what this rank has kept */
    uint64_t message;
    uint64_t total;
    int32_t tag;
    uint32_t dtype;
    uint32_t type; /* tc_p2p_piece: EAGER, OFFER or WITHDRAW */
    uint8_t data[];
} tc_p2p_kept;

/* Everything between this rank and one other.
 *
 * Invariants. Messages of a pair are numbered by their sender in the order of its
 * calls, and their envelopes are in the eager lane in that order. `stream` is the offer
 * whose grant was read last and whose data is not all published; the next grant is read
 * after it. `kept` is in order of arrival, and no posted recv matches anything in it.
 * `debts` of the state counts offers and incoming messages without a part. */
typedef struct tc_p2p_peer {
    int32_t rank;
    bool announced; /* own bit is set in the peer's `senders` */
    bool heard; /* the peer's bit is set in the own `senders`: lanes may be read */
    /* to the peer */
    tc_shm_lane eager_out;
    tc_shm_lane bulk_out;
    tc_p2p_queue sends;
    uint64_t messages;
    uint64_t answers; /* read so far */
    uint32_t offer_count;
    uint32_t withdrawals; /* offers with `withdraw` */
    tc_p2p_offer *stream;
    uint64_t stream_moved;
    tc_p2p_offer offers[TC_P2P_OFFERS];
    /* from the peer */
    tc_shm_lane eager_in;
    tc_shm_lane bulk_in;
    tc_p2p_queue recvs;
    tc_p2p_kept *kept;
    tc_p2p_kept **kept_end;
    uint64_t kept_bytes;
    uint32_t kept_count;
    uint32_t kept_offers; /* of them */
    uint32_t incoming_count;
    uint64_t incoming_first; /* index of the oldest, modulo TC_P2P_INCOMING */
    uint64_t answered; /* answers written so far */
    tc_p2p_incoming incoming[TC_P2P_INCOMING];
} tc_p2p_peer;

/* Of one communicator. */
typedef struct tc_p2p_state {
    tc_p2p_peer **peers; /* by rank; NULL until it is needed */
    int32_t *open; /* the ranks that are not NULL */
    int32_t open_count;
    int32_t heard_count; /* peers with `heard` */
    uint32_t turn; /* which of them comes first in the next pass */
    tc_p2p_queue any;
    uint64_t orders;
    uint64_t arrivals;
    uint64_t pending; /* parts that have not ended */
    uint64_t debts;
} tc_p2p_state;

static inline tc_p2p_op *
tc_p2p_op_of(tc_op *op)
{
    return (tc_p2p_op *)(void *)op->state;
}

static inline tc_p2p_incoming *
tc_p2p_incoming_at(tc_p2p_peer *peer, uint64_t i)
{
    return &peer->incoming[(peer->incoming_first + i) % TC_P2P_INCOMING];
}

/* Whether a rank has finalized the communicator or ended in good order. */
static inline bool
tc_p2p_has_left(const tc_native *comm, int32_t rank)
{
    return tc_load_acquire_u32(&tc_shm_segment_rank(comm->segment, rank)->finalized) !=
               0 ||
           tc_load_acquire_u32(&comm->segment->pages[rank]->closed) != 0;
}

static inline void
tc_p2p_queue_push(tc_p2p_queue *queue, tc_p2p_part *part)
{
    part->next = NULL;
    if (queue->head == NULL) {
        queue->head = part;
    } else {
        queue->tail->next = part;
    }
    queue->tail = part;
}

/* Takes `part`, which is in the queue, out of it. */
static inline void
tc_p2p_queue_unlink(tc_p2p_queue *queue, tc_p2p_part *part)
{
    tc_p2p_part *before = NULL;

    if (queue->head == part) {
        queue->head = part->next;
        return;
    }
    for (before = queue->head; before->next != part; before = before->next) {
    }
    before->next = part->next;
    if (queue->tail == part) {
        queue->tail = before;
    }
}

/* p2p.c ---------------------------------------------------------------------------- */

/* Ends a part, and with the last one its operation. The error of a failing status has
 * been set by tc_p2p_part_fail. Neither may be touched afterwards. */
void
tc_p2p_part_end(tc_native *comm, tc_p2p_part *part);

/* Notes an error of the part's operation, unless it has one; the part has still to end.
 */
void
tc_p2p_part_fail(tc_p2p_part *part, tc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "send of 80 bytes to rank 2 tag 3", "recv from any rank tag 0". */
const char *
tc_p2p_part_describe(const tc_p2p_part *part, char *text, size_t capacity);

/* Ends a part because the communicator is broken. */
void
tc_p2p_part_end_broken(tc_native *comm, tc_p2p_part *part);

enum { TC_P2P_SIZE_TEXT = 64 };

/* "8 float32", also for a dtype number that a peer made up. */
const char *
tc_p2p_size_describe(uint64_t bytes, uint32_t dtype, char text[TC_P2P_SIZE_TEXT]);

/* What is known of `rank`, made when it is first asked for. */
tc_status
tc_p2p_peer_get(tc_native *comm, int32_t rank, tc_p2p_peer **peer_p, tc_error *err);

/* Opens what has been sent from so far. */
void
tc_p2p_peers_discover(tc_native *comm);

/* Moves everything between this rank and a peer; true when something moved. */
bool
tc_p2p_peer_step(tc_native *comm, tc_p2p_peer *peer);

/* p2p_send.c ----------------------------------------------------------------------- */

void
tc_p2p_send_post(tc_native *comm, tc_p2p_part *part);

bool
tc_p2p_send_step(tc_native *comm, tc_p2p_peer *peer);

/* Lets go of the part of an offer; the peer will be told. */
void
tc_p2p_offer_abandon(tc_native *comm, tc_p2p_peer *peer, tc_p2p_offer *offer);

/* p2p_recv.c ----------------------------------------------------------------------- */

void
tc_p2p_recv_post(tc_native *comm, tc_p2p_part *part);

bool
tc_p2p_recv_step(tc_native *comm, tc_p2p_peer *peer);

/* Lets go of the part of a granted message; what still comes is discarded. */
void
tc_p2p_incoming_abandon(tc_native *comm, tc_p2p_incoming *in);

void
tc_p2p_kept_free(tc_p2p_peer *peer);

/* p2p_fault.c ---------------------------------------------------------------------- */

/* Breaks the communicator because `rank` has died and `part` needs it. */
void
tc_p2p_report_death(tc_native *comm, const tc_p2p_part *part, int32_t rank);

#endif
