// Errors of the backend, and the names that its parts share.

#pragma once

// torchcomms makes Python's errors of the standard's.
#define ROUNDELAY_STANDARD_ERRORS

#include <comms/torchcomms/TorchCommBackend.hpp>

#include "../../native/operations.h"

namespace torch::comms {
namespace {

using roundelay::OperationCalls;
using roundelay::rl;
using std::chrono::milliseconds;
using Hints = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<at::Tensor>;

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw std::runtime_error(roundelay::words("roundelay: ", parts...));
}

// Returns the text of an error of the library.
std::string text_of(const roundelay::Error& error) {
  return (error.kind == RL_KIND_TIMEOUT ? "roundelay: Timed out waiting for a peer: " : "roundelay: ") + error.text;
}

void check(int32_t status) {
  if (status != 0) {
    throw std::runtime_error(text_of(roundelay::last_error()));
  }
}

} // namespace
} // namespace torch::comms
