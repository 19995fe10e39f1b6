// Hints, and joining the other ranks of a communicator through a store.

#pragma once

#include "errors.h"

#include "../../native/join.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <map>
#include <set>
#include <thread>

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

// Returns true if there is a hint of that name; warns, once a key, if there is none.
bool known(const std::string& key) {
  static std::mutex mutex;
  static auto* seen = new std::map<std::string, bool>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = seen->find(key);
  if (found != seen->end()) {
    return found->second;
  }
  const bool ours = rl().rl_hint_known(key.c_str()) == 0;
  if (!ours) {
    ROUNDELAY_WARN("roundelay: the hint `", key, "` is left out, as one of another backend: ", roundelay::last_error().text,
               ". Written `roundelay::", key, "` it would be refused");
  }
  return (*seen)[key] = ours;
}

// Returns hints as the native part reads them. Keys with the prefix `roundelay::` are ours, and the native part refuses
// those that it does not know. Keys with the prefix of another backend are left out. Of keys without a prefix those
// that we know count, the others are left out with a warning: torchcomms passes the same hints to every backend.
std::string text_of(const Hints& hints) {
  // What torchcomms and c10d add by themselves, and hints of other backends by names that ours have too.
  static const std::set<std::string> others = {
      "hostname", "interface", "is_high_priority_stream", "lazy_init", "max_event_pool_size", "persistent_store",
      "backend", "global_ranks_in_group", "group_desc", "group_name", "name", "hints"};
  static const std::string own = "roundelay::";
  std::string text;
  for (const auto& [key, value] : hints) {
    std::string name = key;
    if (key.rfind(own, 0) == 0) {
      name = key.substr(own.size());
    } else if (others.count(key) != 0 || key.find("::") != std::string::npos || key.rfind("_", 0) == 0 || !known(key)) {
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

// Returns the prefix of a communicator's keys: its name, and how many of that name this process has made.
std::string part(const std::string& name, int rank) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, int> numbers;
  const std::lock_guard<std::mutex> lock(mutex);
  return "torchcomms/" + name + "/" + std::to_string(numbers[{name, rank}]++);
}

// Returns a part of a store for a communicator.
c10::intrusive_ptr<c10d::Store> below(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int rank) {
  return c10::make_intrusive<c10d::PrefixStore>(part(name, rank), store);
}

// Where the ranks of a communicator meet: a store for it alone, and what they need until they have joined.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> first;
};

// Returns a store that rank 0 serves, found through MASTER_ADDR and MASTER_PORT. That port is taken only until the ranks
// have joined, so a program may serve a store of its own there.
Meeting meet(const std::string& name, int rank, milliseconds timeout) {
  const char* host = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (host == nullptr || port == nullptr) {
    refuse("there is no store to meet at: start by `torchrun`, set MASTER_ADDR and MASTER_PORT, or pass store=");
  }
  const auto there = [&](int at, bool serves) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(at);
    options.isServer = serves;
    options.waitWorkers = false;
    options.timeout = timeout;
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  };
  const int known = std::stoi(port);
  // torchrun serves a store itself, for as long as the job.
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") {
    return {below(there(known, false), name, rank), nullptr};
  }
  const std::string key = part(name, rank);
  if (rank == 0) {
    const auto own = there(0, true);
    c10::intrusive_ptr<c10d::TCPStore> first;
    try {
      first = there(known, true);
    } catch (const std::exception&) { // The program serves a store there.
      first = there(known, false);
    }
    const std::string at = std::to_string(own->getPort());
    first->set(key, std::vector<uint8_t>(at.begin(), at.end()));
    return {c10::make_intrusive<c10d::PrefixStore>(key, own), first};
  }
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    // A store that answers may be that of the communicator before, which rank 0 is about to close.
    try {
      const auto first = there(known, false);
      const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
      first->wait({key}, std::max(left, milliseconds(1)));
      const auto found = first->get(key);
      const int at = std::stoi(std::string(found.begin(), found.end()));
      return {c10::make_intrusive<c10d::PrefixStore>(key, there(at, false)), nullptr};
    } catch (const std::exception& error) {
      if (std::chrono::steady_clock::now() >= until) {
        refuse("rank 0 did not come to the store at ", host, ":", port, " in ", timeout.count(), " ms: ", error.what());
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
}

} // namespace
} // namespace torch::comms
