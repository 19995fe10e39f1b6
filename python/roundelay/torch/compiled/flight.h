// The record of calls: the latest operations of this process, and which of them are not over. `_record.py` has those of
// the backend in Python, `_flight.py` writes both.

#pragma once

#include "../../native/tensors.h"

#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <mutex>

namespace roundelay {

// A group, as the record knows it.
struct About {
  std::string name;
  std::string description;
  std::vector<uint64_t> ranks;
};

// The elements and the type of the buffers of one side of an operation.
using Sides = c10::SmallVector<std::pair<int64_t, at::ScalarType>, 2>;

inline Sides sides(const Tensors& tensors) {
  Sides found;
  for (const Tensor& tensor : tensors) {
    found.emplace_back(tensor.numel(), tensor.scalar_type());
  }
  return found;
}

struct Noted {
  uint64_t id = 0;
  std::shared_ptr<const About> group;
  uint64_t number = 0;
  bool message = false;
  // What torch calls it, and for messages the ranks.
  std::string name;
  Sides inputs;
  Sides outputs;
  int64_t timeout_ms = 0;
  int64_t began_ns = 0;
  uint64_t thread = 0;
  bool ended = false;
  bool retired = false;
  std::shared_ptr<torch::CapturedTraceback> stack;
};

class Flight {
 public:
  static Flight& instance() {
    static Flight* flight = new Flight();
    return *flight;
  }

  // Sets how many operations are kept: none at first.
  void keep(size_t most) {
    std::lock_guard<std::mutex> lock(mutex_);
    ring_.clear();
    ring_.resize(most);
    on_ = most != 0;
  }
  bool on() const {
    return on_;
  }

  // Notes an operation, which is not over; returns the argument of `ended` and `issued`.
  uint64_t begin(Noted noted) {
    noted.stack = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
    auto now = std::chrono::system_clock::now().time_since_epoch();
    noted.began_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    noted.thread = static_cast<uint64_t>(pthread_self());
    std::lock_guard<std::mutex> lock(mutex_);
    noted.id = ++last_;
    // What was there is freed without the lock.
    std::swap(ring_[last_ % ring_.size()], noted);
    return last_;
  }

  void ended(uint64_t id) {
    mark(id, [](Noted& noted) { noted.ended = noted.retired = true; });
  }

  // The operation is in the stream of a GPU, where no thread looks for its end.
  void issued(uint64_t id) {
    mark(id, [](Noted& noted) { noted.retired = true; });
  }

  // Returns the operations, the oldest first.
  std::vector<Noted> latest() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Noted> found;
    for (size_t at = 1; at <= ring_.size(); ++at) {
      const Noted& noted = ring_[(last_ + at) % ring_.size()];
      if (noted.id != 0) {
        found.push_back(noted);
      }
    }
    return found;
  }

  // Returns them as `_flight.py` takes them, with their stacks or without.
  pybind11::list calls(bool stacks) const {
    std::vector<Noted> noted = latest();
    std::vector<torch::CapturedTraceback*> captured;
    for (const Noted& each : noted) {
      captured.push_back(each.stack.get());
    }
    torch::SymbolizedTracebacks known = stacks ? torch::symbolize(captured) : torch::SymbolizedTracebacks();
    pybind11::list found;
    for (size_t at = 0; at < noted.size(); ++at) {
      const Noted& each = noted[at];
      pybind11::list frames;
      for (uint64_t index : stacks ? known.tracebacks.at(at) : std::vector<uint64_t>()) {
        const auto& frame = known.all_frames.at(index);
        using namespace pybind11::literals;
        frames.append(pybind11::dict("name"_a = frame.funcname, "filename"_a = frame.filename, "line"_a = frame.lineno));
      }
      found.append(pybind11::make_tuple(
          each.group->name, each.group->description, each.group->ranks, each.number, each.message, each.name,
          listed(each.inputs), listed(each.outputs), each.timeout_ms, each.began_ns, each.thread, each.ended,
          each.retired, frames));
    }
    return found;
  }

 private:
  template <class Change>
  void mark(uint64_t id, Change change) {
    if (id == 0) {
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Noted& noted = ring_[id % ring_.size()];
    if (noted.id == id) {
      change(noted);
    }
  }

  static pybind11::list listed(const Sides& sides) {
    pybind11::list found;
    for (const auto& [count, type] : sides) {
      found.append(pybind11::make_tuple(count, std::string(c10::toString(type))));
    }
    return found;
  }

  mutable std::mutex mutex_;
  std::vector<Noted> ring_;
  std::atomic<bool> on_{false};
  uint64_t last_ = 0;
};

} // namespace roundelay
