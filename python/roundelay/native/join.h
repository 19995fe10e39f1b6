// Joining the other ranks of a group through a store of torch.

#pragma once

#include "native.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <vector>

namespace roundelay {

// A store by which ranks join, a function that is called now and then while one waits there, and what that has thrown.
class JoinStore {
 public:
  JoinStore(c10d::Store& store, std::function<void()> look) : store_(store), look_(std::move(look)) {}

  // Joins; returns the communicator, or null, with the error of the last call. Throws what the function has thrown.
  rl_comm* join(int rank, int size, const std::string& hints, uint64_t timeout_ms) {
    rl_store functions{this, &JoinStore::set, &JoinStore::get};
    rl_comm* made = nullptr;
    if (rl().rl_join(rank, size, &functions, hints.empty() ? nullptr : hints.c_str(), timeout_ms, &made) != 0 && thrown_) {
      std::rethrow_exception(thrown_);
    }
    // The given timeout goes before a hint.
    if (made != nullptr && rl().rl_set_timeout(made, timeout_ms) != 0) {
      rl().rl_free(made);
      return nullptr;
    }
    return made;
  }

 private:
  static int32_t set(void* context, const char* key, const void* value, uint64_t length) {
    try {
      const uint8_t* begin = static_cast<const uint8_t*>(value);
      static_cast<JoinStore*>(context)->store_.set(key, std::vector<uint8_t>(begin, begin + length));
      return 0;
    } catch (...) {
      return 1;
    }
  }

  static int32_t get(
      void* context, const char* key, uint64_t wait_ms, void* value, uint64_t capacity, uint64_t* length) {
    auto* own = static_cast<JoinStore*>(context);
    try {
      own->wait(key, std::chrono::milliseconds(wait_ms));
      std::vector<uint8_t> found = own->store_.get(key);
      if (found.size() > capacity) {
        return 2;
      }
      std::copy(found.begin(), found.end(), static_cast<uint8_t*>(value));
      *length = found.size();
      return 0;
    } catch (...) {
      return 1;
    }
  }

  // Waits for a key in parts, between which the function is called.
  void wait(const char* key, std::chrono::milliseconds limit) {
    using Clock = std::chrono::steady_clock;
    using Milliseconds = std::chrono::milliseconds;
    constexpr Milliseconds part(100);
    const auto until = Clock::now() + limit;
    while (true) {
      const auto begun = Clock::now();
      const auto left = std::chrono::duration_cast<Milliseconds>(until - begun);
      const auto most = std::clamp(left, Milliseconds(1), look_ ? part : std::max(left, Milliseconds(1)));
      try {
        store_.wait({key}, most);
        return;
      } catch (const std::exception&) {
        // What fails before its time is the store.
        if (!look_ || left <= part || Clock::now() - begun < most / 2) {
          throw;
        }
      }
      try {
        look_();
      } catch (...) {
        thrown_ = std::current_exception();
        throw;
      }
    }
  }

  c10d::Store& store_;
  std::function<void()> look_;
  std::exception_ptr thrown_;
};

} // namespace roundelay
