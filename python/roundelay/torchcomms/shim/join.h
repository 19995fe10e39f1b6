// Hints, and joining the other ranks of a communicator through a store.

#pragma once

#include "memory.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <map>
#include <set>

namespace torch::comms {
namespace {

// Finds the functions of the native module, once.
void load_native() {
  static const bool loaded = [] {
    const char* path = std::getenv("ROUNDELAY_NATIVE");
    if (path == nullptr) {
      refuse("ROUNDELAY_NATIVE is not set: importing roundelay.torchcomms.entry sets it to the native module's path");
    }
    roundelay::load(path);
    return true;
  }();
  (void)loaded;
}

// Returns hints as the native part reads them, without those of other backends.
std::string text_of(const Hints& hints) {
  static const std::set<std::string> others = {
      "hostname", "interface", "is_high_priority_stream", "lazy_init", "max_event_pool_size", "persistent_store",
      "backend", "global_ranks_in_group", "group_desc", "group_name", "name", "hints"};
  static const std::string own = "roundelay::";
  std::string text;
  for (const auto& [key, value] : hints) {
    std::string name = key;
    if (key.rfind(own, 0) == 0) {
      name = key.substr(own.size());
    } else if (others.count(key) != 0 || key.find("::") != std::string::npos || key.rfind("_", 0) == 0) {
      continue;
    }
    text += (text.empty() ? "" : ",") + name + "=" + value;
  }
  return text;
}

uint64_t limit_of(milliseconds timeout) {
  if (timeout.count() < 0) {
    refuse("the timeout is negative, ", timeout.count(), " ms: give a positive one, or none");
  }
  return static_cast<uint64_t>(timeout.count());
}

int32_t store_set(void* context, const char* key, const void* value, uint64_t len) {
  try {
    const auto* bytes = static_cast<const uint8_t*>(value);
    static_cast<c10d::Store*>(context)->set(key, std::vector<uint8_t>(bytes, bytes + len));
    return 0;
  } catch (...) {
    return 1;
  }
}

int32_t store_get(void* context, const char* key, uint64_t timeout_ms, void* value, uint64_t capacity, uint64_t* len) {
  try {
    auto* store = static_cast<c10d::Store*>(context);
    store->wait({key}, milliseconds(timeout_ms));
    const auto found = store->get(key);
    if (found.size() > capacity) {
      return 2;
    }
    std::copy(found.begin(), found.end(), static_cast<uint8_t*>(value));
    *len = found.size();
    return 0;
  } catch (...) {
    return 1;
  }
}

// Returns the store at MASTER_ADDR and MASTER_PORT, which rank 0 serves unless torchrun does.
c10::intrusive_ptr<c10d::Store> store_of_launcher(int rank, milliseconds timeout) {
  const char* host = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (host == nullptr || port == nullptr) {
    refuse("there is no store to meet at: start by `torchrun`, set MASTER_ADDR and MASTER_PORT, or pass store=");
  }
  static std::mutex mutex;
  static auto* stores = new std::map<std::string, c10::intrusive_ptr<c10d::Store>>();
  const std::lock_guard<std::mutex> lock(mutex);
  auto& found = (*stores)[std::string(host) + ":" + port];
  if (!found) {
    const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(std::stoi(port));
    options.isServer = rank == 0 && (agent == nullptr || std::string(agent) != "True");
    options.waitWorkers = false;
    options.multiTenant = true;
    options.timeout = timeout;
    found = c10::make_intrusive<c10d::TCPStore>(host, options);
  }
  return found;
}

// Returns a part of a store for a communicator: its name, and how many of that name this process has made.
c10::intrusive_ptr<c10d::Store> below(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int rank) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, int> numbers;
  const std::lock_guard<std::mutex> lock(mutex);
  const int number = numbers[{name, rank}]++;
  return c10::make_intrusive<c10d::PrefixStore>("torchcomms/" + name + "/" + std::to_string(number), store);
}

} // namespace
} // namespace torch::comms
