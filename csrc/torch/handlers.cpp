/* SPDX-License-Identifier: BSD-3-Clause */
/* Hands requests of torch's debug server to Python, where the record is.
 *
 * Python's own way to register a handler does not show it the names of the parameters,
 * so that one could not refuse those it does not know. */
#include "torch/handlers.h"

#include "torch/shim.h"

namespace torchcomms {

namespace {

namespace py = pybind11;
using c10d::control_plane::Request;
using c10d::control_plane::Response;

constexpr const char *module_name = "torchcomms.hooks.fr.handlers";

void
answer(Response &response, int status, std::string text, const std::string &type)
{
    response.setContent(std::move(text), type);
    response.setStatus(status);
}

void
ask_python(const char *name, const Request &request, Response &response)
{
    py::gil_scoped_acquire gil;
    py::list parameters;

    for (const auto &[key, value] : request.params()) {
        parameters.append(py::make_tuple(key, value));
    }
    auto [status, text, type] = py::module_::import(module_name)
                                    .attr(name)(parameters)
                                    .cast<std::tuple<int, std::string, std::string>>();
    answer(response, status, std::move(text), type);
}

/* Runs on a thread of the server: nothing is thrown into it. */
void
handle(const char *name, const Request &request, Response &response)
{
    if (is_closed()) {
        answer(response, 503, "the process exits", "text/plain");
        return;
    }
    try {
        ask_python(name, request, response);
    } catch (const std::exception &error) {
        answer(response, 500, error.what(), "text/plain");
    }
}

} // namespace

void
register_handlers()
{
    for (const char *name : {"torchcomms_fr_trace_json", "torchcomms_fr_dump_file",
                             "torchcomms_health_check"}) {
        c10d::control_plane::registerHandler(
            name, [name](const Request &request, Response &response) {
                handle(name, request, response);
            });
    }
}

} // namespace torchcomms
