// Work: operations that have ended, or go on in the background.

#pragma once

#include "../../native/background.h"
#include "../../native/stream.h"
#include "group.h"

#include <ATen/core/ivalue.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace roundelay {

using Milliseconds = std::chrono::milliseconds;
using Future = c10::intrusive_ptr<c10::ivalue::Future>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// What the Python half gives: functions and objects that live as long as the process.
struct Python {
  PyObject* error = nullptr;       // (kind, code, rank, peer, step, text, source, seconds) -> exception
  PyObject* timed_out = nullptr;   // (what, seconds) -> exception
  PyObject* active = nullptr;      // the list of the `with` blocks of hints
  PyObject* hints = nullptr;       // () -> "key=value,…" of them
  PyObject* group_hints = nullptr; // (options of a group) -> "key=value,…"
  PyObject* monitor = nullptr;     // (store, rank, size) -> (seconds, wait_all_ranks) -> None
  PyObject* stream = nullptr;      // (index of a GPU) -> its current stream
};

inline Python& python() {
  static Python parts;
  return parts;
}

// The function of torch that knows the current stream of a device of DLPack. It needs no Python, and no header of CUDA.
using StreamFunction = int (*)(int device_type, int32_t device, void** stream);

// Null where this torch has none.
inline StreamFunction& stream_function() {
  static StreamFunction found = nullptr;
  return found;
}

// Finds it in the table of functions that torch gives to other libraries.
inline void find_stream_function(PyObject* capsule) {
  struct Exchange { // DLPackExchangeAPI of DLPack 1.
    struct {
      uint32_t major, minor;
    } version;
    void* older;
    void* of_tensors[4];
    StreamFunction current_work_stream;
  };
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    auto* table = static_cast<Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    stream_function() = table->version.major == 1 ? table->current_work_stream : nullptr;
  }
}

inline bool interpreter_lives() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// Calls a function that returns an exception, and returns that; another if it fails itself.
template <class... Args>
std::exception_ptr exception_by(PyObject* function, const std::string& text, const Args&... args) {
  if (!interpreter_lives()) {
    return std::make_exception_ptr(std::runtime_error(text));
  }
  pybind11::gil_scoped_acquire gil;
  try {
    pybind11::object made = pybind11::handle(function)(args...);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  } catch (pybind11::error_already_set& failed) {
    failed.restore();
  }
  python_error error;
  error.persist();
  return std::make_exception_ptr(std::move(error));
}

// Returns an error of the library as the exception that the Python faces raise.
inline std::exception_ptr exception_of(const Error& error, Milliseconds limit) {
  return exception_by(
      python().error, error.text, error.kind, error.code, error.rank, error.peer, error.step, error.text, error.source,
      static_cast<double>(limit.count()) / 1000.0);
}

// Returns an operation in words: what it is, and the elements of its first tensor.
inline std::string described(const std::string& label, const CallMemory& memory) {
  const Tensors& kept = memory.kept();
  return kept.empty() ? label : words(label, " of ", kept[0].numel(), " x ", type_name(kept[0].scalar_type()));
}

// Returns true if a text has one of the names, between which there are slashes.
inline bool names_one(const std::string& text, const std::string& names) {
  for (size_t at = 0; at <= names.size();) {
    size_t end = std::min(names.find('/', at), names.size());
    if (text.find(names.substr(at, end - at)) != std::string::npos) {
      return true;
    }
    at = end + 1;
  }
  return false;
}

// Returns the error of a rank that stopped because another one failed, with what itself was doing: if the ranks did not
// make the same call, the error has both then. Others of those that end the group begin with it unless they have the
// name of the operation, as where another rank was gone before.
inline Error also(Error error, const std::string& own) {
  if (own.empty()) {
    return error;
  }
  if (error.kind == RL_KIND_ABORTED) {
    error.text += "; this rank had called " + own;
  } else if (ends_group(error) && !names_one(error.text, own.substr(0, own.find(' ')))) {
    error.text = own + ": " + error.text;
  }
  return error;
}

[[noreturn]] inline void raise_timed_out(const std::string& what, Milliseconds limit) {
  std::rethrow_exception(exception_by(
      python().timed_out, "Timed out waiting for " + what, what, static_cast<double>(limit.count()) / 1000.0));
}

// Lets other threads of the interpreter run while this one waits.
class WithoutInterpreter {
 public:
  WithoutInterpreter() {
    if (Py_IsInitialized() && PyGILState_Check()) {
      release_.emplace();
    }
  }

 private:
  std::optional<pybind11::gil_scoped_release> release_;
};

// Raises `KeyboardInterrupt` on the main thread if the user has asked for it.
inline void check_signals() {
  if (getpid() != gettid() || !interpreter_lives()) {
    return;
  }
  pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    python_error error;
    error.persist();
    throw std::move(error);
  }
}

inline uint64_t next_key() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// What all works have: the output tensors, a number of their own, and their number in the group.
class Base : public c10d::Work {
 public:
  Base(int rank, c10d::OpType type, Tensors result) : Work(rank, type), outputs_(std::move(result)), key_(next_key()) {}

  std::vector<Tensor> result() override {
    wait(kNoTimeout);
    return outputs_;
  }
  void synchronize() override {
    wait(kNoTimeout);
  }
  bool isSuccess() const override {
    return const_cast<Base*>(this)->isCompleted() && exception() == nullptr;
  }
  std::exception_ptr exception() const override {
    return nullptr;
  }
  int sourceRank() const override {
    return -1;
  }
  uint64_t getSequencenumber() const override {
    return sequence_;
  }
#ifdef ROUNDELAY_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override {
    return key_;
  }
#endif
  // Sets its number in the group. Returns the arguments of hooks for its end.
  Group::Ended numbered(uint64_t sequence, Group::Clock::time_point begun) {
    sequence_ = sequence;
    return {retrieveOpType(), key_, sequence, begun};
  }

 protected:
  Future new_future(std::vector<c10::Device> devices = {}) const {
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), std::move(devices));
  }
  Tensors outputs_;
  uint64_t key_;
  uint64_t sequence_ = 0;
};

// Work that has ended with success.
class Done : public Base {
 public:
  using Base::Base;
  Done(int rank, c10d::OpType type, Tensors result, int source)
      : Base(rank, type, std::move(result)), source_(source) {}
  bool wait(Milliseconds) override {
    return true;
  }
  bool isCompleted() override {
    return true;
  }
  int sourceRank() const override {
    return source_;
  }
  Future getFuture() override {
    Future future = new_future();
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  int source_ = -1;
};

// Operations in the background, which end in the order in which they were started; `Pending` and the callback of the
// last operation own it together, so tensors live until the end without a waiter.
struct State {
  const OwnerProcess process;
  std::atomic<int> owners{2};
  std::shared_ptr<Group> group;
  uint64_t sequence = 0;
  Group::Clock::time_point begun;
  Group::Ended report{};
  uint64_t noted = 0;
  Profiled profiled;
  BackgroundCalls calls;
  Tensors outputs;
  Milliseconds limit{0};
  std::string label;

  std::mutex mutex;
  std::atomic<bool> ended{false};
  bool called = false;
  bool completed = false;
  std::optional<Error> failed;
  Future future;

  // Takes note of the end of the operations, which has come, and makes the copies that are due.
  void settle() {
    if (ended) {
      return;
    }
    CallMemory dropped;
    std::unique_lock<std::mutex> lock(mutex);
    if (ended) {
      return;
    }
    failed = calls.finish();
    if (failed) {
      failed = also(std::move(*failed), described(label, calls.memory));
    } else {
      Flight::instance().ended(noted);
    }
    std::swap(dropped, calls.memory);
    profiled.end();
    ended = true;
    if (failed && ends_group(*failed) && process.is_here()) {
      lock.unlock();
      group->aborted();
    }
  }

  // Completes the future, where there is one; once.
  void complete() {
    Future due;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!future || completed) {
        return;
      }
      completed = true;
      due = future;
    }
    if (failed) {
      due->setError(exception_of(*failed, limit));
    } else {
      due->markCompleted(c10::IValue(outputs));
    }
  }

  // Completes the future, or waits until another thread has, where there is one. Its callbacks are not waited for.
  void reach() {
    Future due;
    {
      std::lock_guard<std::mutex> lock(mutex);
      due = future;
    }
    if (due && !due->completed()) {
      WithoutInterpreter others;
      complete();
      due->wait();
    }
  }

  // Drops one of the owners; the last one frees it.
  void release() {
    if (owners.fetch_sub(1) == 1) {
      delete this;
    }
  }

  // Called by the library, on the progress thread or on that of the caller.
  static void on_done(void* context, int32_t status) {
    State* state = static_cast<State*>(context);
    bool due;
    {
      std::lock_guard<std::mutex> lock(state->mutex);
      state->called = true;
      due = status != 0 || state->calls.memory.has_copies() || state->future || state->profiled;
    }
    std::shared_ptr<Group> group = state->group;
    if (status == 0) {
      Flight::instance().ended(state->noted);
      group->succeeded(state->report);
    }
    if (!due && state->owners.fetch_sub(1) != 1) {
      group->end();
      return;
    }
    // Callbacks and tensors may be Python's: what wants the interpreter does so here, where it may wait for its lock,
    // and before the group has ended, which the end of the program waits for.
    Completions::run([state, group, due] {
      if (due) {
        state->settle();
        state->complete();
        state->release();
      } else {
        delete state;
      }
      group->end();
    });
  }

  // Has the library call `on_done` once.
  void watch() {
    group->begin();
    if (rl().rl_work_on_done(calls.works.back(), &State::on_done, this) != 0) {
      on_done(this, -1);
    }
  }
};

class Pending : public Base {
 public:
  Pending(int rank, c10d::OpType type, State* state) : Base(rank, type, state->outputs), state_(state) {
    state->report = numbered(state->sequence, state->begun);
    state->watch();
  }
  ~Pending() override {
    state_->release();
  }

  bool wait(Milliseconds timeout) override {
    if (!state_->ended) {
      WithoutInterpreter others;
      auto until = std::chrono::steady_clock::now() + timeout;
      for (rl_work* native : state_->calls.works) {
        wait_for(native, timeout, until);
      }
      state_->settle();
    }
    // Callbacks that are added to the future from now on run at once.
    state_->reach();
    if (state_->failed) {
      std::rethrow_exception(exception_of(*state_->failed, state_->limit));
    }
    return true;
  }

  bool isCompleted() override {
    if (state_->ended) {
      return true;
    }
    for (rl_work* native : state_->calls.works) {
      int32_t done = 0;
      rl().rl_work_is_done(native, &done);
      if (done == 0) {
        return false;
      }
    }
    WithoutInterpreter others;
    state_->settle();
    return true;
  }

  std::exception_ptr exception() const override {
    bool ended = const_cast<Pending*>(this)->isCompleted();
    return ended && state_->failed ? exception_of(*state_->failed, state_->limit) : nullptr;
  }

  int sourceRank() const override {
    uint32_t source = 0;
    return rl().rl_work_source(state_->calls.works.back(), &source) == 0 ? static_cast<int>(source) : -1;
  }

  Future getFuture() override {
    WithoutInterpreter others;
    Future future = new_future();
    {
      std::lock_guard<std::mutex> lock(state_->mutex);
      if (state_->future) {
        return state_->future;
      }
      state_->future = future;
      // In a child the operation has failed, and nothing calls.
      if (!state_->called && state_->process.is_here()) {
        return future;
      }
    }
    state_->settle();
    state_->complete();
    return future;
  }

 private:
  void wait_for(rl_work* native, Milliseconds timeout, std::chrono::steady_clock::time_point until) {
    constexpr int64_t signals = 50;
    int32_t done = 0;
    while (true) {
      int64_t left = signals;
      if (timeout.count() > 0) {
        auto rest = std::chrono::duration_cast<Milliseconds>(until - std::chrono::steady_clock::now()).count() + 1;
        left = std::clamp<int64_t>(rest, 0, signals);
      }
      rl().rl_work_wait(native, static_cast<uint64_t>(left), &done);
      if (done != 0) {
        return;
      }
      if (timeout.count() > 0 && std::chrono::steady_clock::now() >= until) {
        raise_timed_out(state_->label + " operation to complete", timeout);
      }
      check_signals();
    }
  }

  State* state_;
};

// Operations in the stream of a GPU that is current when they are put there.
class OnStream : public Base {
 public:
  // Who does not ask for work does not wait for it in another stream.
  OnStream(int rank, c10d::OpType type, Tensors result, Tensors memory, c10::Device device, bool background)
      : Base(rank, type, std::move(result)), enqueued_(device, with(std::move(memory), outputs_), background) {}
  // Has the current stream wait for the operations.
  bool wait(Milliseconds) override {
    enqueued_.wait();
    return true;
  }
  bool isCompleted() override {
    return enqueued_.done();
  }
  // The future is complete in the order of the streams: for those that wait for it.
  Future getFuture() override {
    c10::StreamGuard guard(enqueued_.stream());
    Future future = new_future({enqueued_.stream().device()});
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  static Tensors with(Tensors memory, const Tensors& outputs) {
    memory.insert(memory.end(), outputs.begin(), outputs.end());
    return memory;
  }

  Enqueued enqueued_;
};

// Several works as one.
class Together : public Base {
 public:
  Together(int rank, std::vector<WorkPtr> works) : Base(rank, c10d::OpType::COALESCED, {}), works_(std::move(works)) {}
  bool wait(Milliseconds timeout) override {
    for (const WorkPtr& work : works_) {
      work->wait(timeout);
    }
    return true;
  }
  bool isCompleted() override {
    for (const WorkPtr& work : works_) {
      if (!work->isCompleted()) {
        return false;
      }
    }
    return true;
  }
  std::exception_ptr exception() const override {
    for (const WorkPtr& work : works_) {
      if (std::exception_ptr error = work->exception()) {
        return error;
      }
    }
    return nullptr;
  }
  Future getFuture() override {
    c10::List<Future> all(c10::FutureType::create(c10::ListType::ofTensors()));
    for (const WorkPtr& work : works_) {
      all.push_back(work->getFuture());
    }
    return c10::collectAll(all);
  }

 private:
  std::vector<WorkPtr> works_;
};

} // namespace roundelay
