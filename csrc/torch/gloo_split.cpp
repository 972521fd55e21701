/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting the ranks of a new communicator, and of the children of one. */
#include "torch/gloo_split.h"

namespace py = pybind11;

namespace torchcomms {

namespace {

/* The store as Python knows it: an adapter of torchcomms._store, or c10d's own; None
 * where there is none. [GIL] */
py::object
python_store(const tc_store *store)
{
    if (store == nullptr) {
        return py::none();
    }
    PyObject *object = core->store_object(store);

    if (object != nullptr) {
        return py::reinterpret_borrow<py::object>(object);
    }
    c10::intrusive_ptr<c10d::Store> c10d_store = store_of_adapter(store);

    TORCH_CHECK(c10d_store != nullptr, "gloo needs a store of torch.distributed");
    return py::cast(c10d_store);
}

py::dict
hints_of(const tc_comm_config *config)
{
    py::dict hints;

    for (size_t i = 0; i < config->hint_count; i++) {
        hints[config->hints[i].key] = config->hints[i].value;
    }
    return hints;
}

/* From torchcomms._comms_gloo: (group, whatever has to live as long). [GIL] */
py::object
connect_ranks(const tc_comm_config *config, const tc_store *store,
              const GlooComm *parent, const std::string &prefix)
{
    py::object module = py::module_::import("torchcomms._comms_gloo");
    double seconds = static_cast<double>(config->timeout_ns) / 1e9;

    if (parent != nullptr) {
        return module.attr("_connect_child")(parent->parts(), prefix, config->rank,
                                             config->size, seconds, hints_of(config));
    }
    return module.attr("_connect")(python_store(store), config->name, config->rank,
                                   config->size, seconds, hints_of(config));
}

bool
has_hint(const tc_comm_config *config, const char *key)
{
    for (size_t i = 0; i < config->hint_count; i++) {
        if (strcmp(config->hints[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

std::shared_ptr<GlooComm>
make_comm(const tc_comm_config *config, const tc_store *store, const GlooComm *parent,
          const std::string &prefix)
{
    py::gil_scoped_acquire gil;
    py::object parts = connect_ranks(config, store, parent, prefix);

    return std::make_shared<GlooComm>(
        config, parts.attr("__getitem__")(0).cast<c10::intrusive_ptr<c10d::Backend>>(),
        parts);
}

/* Ctrl-C goes through as it is: the exception stays set. */
tc_status
python_failed(py::error_already_set &cause, const char *name, tc_error *err)
{
    py::gil_scoped_acquire gil;

    if (!cause.matches(PyExc_Exception)) {
        cause.restore();
        return TC_INTERRUPTED;
    }
    std::string text = py::str(cause.value());
    err->status = TC_ERR_STORE;
    snprintf(err->message, sizeof(err->message), "communicator '%s': %s", name,
             text.substr(0, text.find('\n')).c_str());
    return TC_ERR_STORE;
}

} // namespace

tc_status
gloo_open(const tc_comm_config *config, const tc_store *store, const GlooComm *parent,
          const std::string &prefix, void **comm_p, tc_error *err)
{
    std::shared_ptr<GlooComm> comm;

    try {
        comm = make_comm(config, store, parent, prefix);
    } catch (py::error_already_set &cause) {
        return python_failed(cause, config->name, err);
    } catch (const std::exception &cause) {
        err->status = TC_ERR_INTERNAL;
        snprintf(err->message, sizeof(err->message), "communicator '%s': %s",
                 config->name, cause.what());
        return TC_ERR_INTERNAL;
    }
    if (!has_hint(config, "lazy")) {
        c10d::BarrierOptions opts;

        opts.timeout = std::chrono::milliseconds(
            std::max<uint64_t>(config->timeout_ns / 1000000, 1));
        tc_status status =
            guard_gloo(std::string("start of communicator '") + config->name + "'", err,
                       [&] { comm->group().barrier(opts)->wait(); });
        if (status != TC_OK) {
            comm->finalize();
            return status;
        }
    }
    *comm_p = new std::shared_ptr<GlooComm>(std::move(comm));
    return TC_OK;
}

/* Split ---------------------------------------------------------------------------- */

namespace {

/* What a rank tells all ranks of the parent: its list, by a bit for each of the first
 * ranks and by its hash. */
struct GlooBlob {
    uint64_t number; /* of this split */
    uint64_t list_hash;
    int32_t joins; /* length of the list */
    uint32_t unused;
    uint64_t members[16];
};

static_assert(sizeof(GlooBlob) <= TC_SPLIT_BLOB_BYTES, "fits a blob");

constexpr int32_t kMemberBits = 16 * 64;

uint64_t
hash_ranks(const tc_split *split)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int32_t i = 0; i < split->rank_count; i++) {
        hash =
            (hash ^ static_cast<uint32_t>(split->ranks[i])) * UINT64_C(0x100000001b3);
    }
    return hash;
}

GlooBlob
gloo_blob_of(const uint8_t *blobs, int32_t rank)
{
    GlooBlob blob;

    memcpy(&blob, blobs + static_cast<size_t>(rank) * TC_SPLIT_BLOB_BYTES,
           sizeof(blob));
    return blob;
}

/* Every rank checks every pair, so all of the parent come to the same verdict. */
tc_status
check_lists(const GlooComm &parent, const uint8_t *blobs, tc_error *err)
{
    for (int32_t p = 0; p < parent.size(); p++) {
        GlooBlob a = gloo_blob_of(blobs, p);

        for (int32_t q = 0; q < parent.size(); q++) {
            GlooBlob b = gloo_blob_of(blobs, q);
            bool listed = q < kMemberBits && (a.members[q / 64] >> (q % 64) & 1) != 0;

            if (listed && (a.list_hash != b.list_hash || a.number != b.number)) {
                err->status = TC_ERR_MISMATCH;
                snprintf(err->message, sizeof(err->message),
                         "split of communicator '%s': rank %d lists rank %d, which "
                         "passed %s",
                         parent.name().c_str(), p, q,
                         b.joins == 0 ? "no ranks" : "another list");
                return err->status;
            }
        }
    }
    return TC_OK;
}

} // namespace

void
gloo_split_begin(void *ctx, const tc_comm_config *, const tc_split *split,
                 uint8_t bytes[TC_SPLIT_BLOB_BYTES], void **pending_p)
{
    GlooBlob blob = {};

    blob.number = (*static_cast<std::shared_ptr<GlooComm> *>(ctx))->next_split();
    blob.list_hash = hash_ranks(split);
    blob.joins = split->rank_count;
    for (int32_t i = 0; i < split->rank_count; i++) {
        if (split->ranks[i] < kMemberBits) {
            blob.members[split->ranks[i] / 64] |= UINT64_C(1) << (split->ranks[i] % 64);
        }
    }
    memcpy(bytes, &blob, sizeof(blob));
    *pending_p = nullptr;
}

tc_status
gloo_split_end(void *ctx, const tc_comm_config *config, const tc_split *split, void *,
               const uint8_t *blobs, void **child_p, tc_error *err)
{
    GlooComm &parent = **static_cast<std::shared_ptr<GlooComm> *>(ctx);

    if (blobs == nullptr) {
        return TC_OK;
    }
    tc_status status = check_lists(parent, blobs, err);
    if (status != TC_OK || split->rank_count == 0) {
        return status;
    }
    int32_t smallest =
        *std::min_element(split->ranks, split->ranks + split->rank_count);
    std::string prefix = "split/" +
                         std::to_string(gloo_blob_of(blobs, parent.rank()).number) +
                         "/" + std::to_string(smallest);

    return gloo_open(config, nullptr, &parent, prefix, child_p, err);
}

} // namespace torchcomms
