// The calls that a group makes: the one place where operations of the library are started.

#pragma once

#include "../../native/join.h"
#include "../../native/operations.h"
#include "work.h"

namespace roundelay {

// What one operation is made of.
struct Operation : OperationCalls {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* label = "";
  // The profiler's record: none without a title, which parts of other operations have not.
  const char* title = nullptr;
  Tensors inputs;
  Milliseconds timeout{0};
  bool async = false;
  // Whether a caller waits for the work. Torch does not for a call that is not asynchronous, and takes null, since 2.8.
  bool awaited = true;
  // The record of calls.
  Sides inputs_of;
  Sides outputs_of;
  int peer = -1;
  Tensors result;
  at::Device device{at::kCPU};
};

// Returns torch's name of an operation.
inline std::string name_of(const Operation& operation, int rank) {
  switch (operation.type) {
    case c10d::OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case c10d::OpType::ALLGATHER_COALESCED:
      return "allgather_coalesced";
    case c10d::OpType::_ALLGATHER_BASE:
      return operation.calls.size() > 1 ? "all_gather_into_tensor_coalesced" : "_all_gather_base";
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return operation.calls.size() > 1 ? "reduce_scatter_tensor_coalesced" : "_reduce_scatter_base";
    case c10d::OpType::COALESCED:
      return "coalesced";
    case c10d::OpType::SEND:
      return words("send ", rank, "->", operation.peer);
    case c10d::OpType::RECV:
      return words("recv ", rank, "<-", operation.peer);
    case c10d::OpType::RECVANYSOURCE:
      return words("recv ", rank, "<-?");
    default:
      return operation.label;
  }
}

// Throws the Python error that is set as one that other threads may carry.
[[noreturn]] inline void throw_python(pybind11::error_already_set& failed) {
  failed.restore();
  python_error error;
  error.persist();
  throw std::move(error);
}

// Joins the ranks that share a store.
inline rl_comm* join(c10d::Store& store, int rank, int size, const std::string& hints, Milliseconds timeout) {
  WithoutInterpreter others;
  uint64_t limit = std::max<int64_t>(timeout.count(), 1);
  rl_comm* made = JoinStore(store, &check_signals).join(rank, size, hints, limit);
  if (made == nullptr) {
    std::rethrow_exception(exception_of(last_error(), timeout));
  }
  return made;
}

// Returns a communicator of this rank alone, which comes to others by `reconfigure`.
inline rl_comm* alone(const std::string& hints, Milliseconds timeout) {
  rl_comm* made = nullptr;
  if (rl().rl_alone(hints.empty() ? nullptr : hints.c_str(), &made) != 0 ||
      rl().rl_set_timeout(made, std::max<int64_t>(timeout.count(), 1)) != 0) {
    std::rethrow_exception(exception_of(last_error(), timeout));
  }
  return made;
}

// The communicators of a group, of its hosts and of its GPUs.
class Calls {
 public:
  // `name` is that of the backend in events of the profiler.
  Calls(rl_comm* hosts, Milliseconds timeout, std::string name)
      : timeout(timeout), name(std::move(name)), group(std::make_shared<Group>()), hosts_(hosts, &Calls::free) {}

  const OwnerProcess process;
  std::atomic<Milliseconds> timeout;
  std::atomic<uint64_t> count{0};
  const std::string name;
  std::shared_ptr<Group> group;
  std::shared_ptr<About> about = std::make_shared<About>();
  int rank = 0;
  // True for a group that was not reconfigured yet.
  std::atomic<bool> waits{false};

  // Throws in a child of the process that made the group. No lock is taken: one may be held there for ever.
  void check_process() {
    if (!process.is_here()) {
      check(rl().rl_abort(hosts_.get(), ""), timeout.load());
    }
  }

  // Returns the communicator of the hosts. Throws when the group was shut down, or has no ranks yet.
  std::shared_ptr<rl_comm> hosts() {
    check_process();
    std::lock_guard<std::mutex> lock(mutex_);
    ROUNDELAY_CHECK(DistBackendError, !waits,
        "roundelay: the process group was made with enable_reconfigure and has no ranks yet: call reconfigure first");
    ROUNDELAY_CHECK(DistBackendError, hosts_ != nullptr,
        "roundelay: the process group was shut down: make a new one with torch.distributed.new_group");
    return hosts_;
  }

  // Returns the communicator of the hosts, or null when the group was shut down.
  std::shared_ptr<rl_comm> hosts_if_there() {
    check_process();
    std::lock_guard<std::mutex> lock(mutex_);
    return hosts_;
  }

  // Returns the communicator of a device; the first call for a GPU is collective.
  std::shared_ptr<rl_comm> on(at::Device device) {
    if (device.is_cpu()) {
      return hosts();
    }
    std::shared_ptr<rl_comm> whole = hosts();
    std::lock_guard<std::mutex> lock(devices_mutex_);
    int index = device.has_index() ? device.index() : 0;
    auto found = devices_.find(index);
    if (found == devices_.end()) {
      rl_comm* made = nullptr;
      check(rl().rl_cuda(whole.get(), index, &made), timeout.load());
      found = devices_.emplace(index, std::shared_ptr<rl_comm>(made, &Calls::free)).first;
    }
    return found->second;
  }

  // Sets the longest time without progress of operations that follow, on the hosts and on the GPUs.
  void set_timeout(Milliseconds limit) {
    timeout = limit;
    std::shared_ptr<rl_comm> whole = waits ? hosts_if_there() : hosts();
    check(rl().rl_set_timeout(whole.get(), limit.count()), limit);
    std::lock_guard<std::mutex> lock(devices_mutex_);
    for (const auto& [index, comm] : devices_) {
      check(rl().rl_set_timeout(comm.get(), limit.count()), limit);
    }
  }

  // Ends the communicators of the hosts and of the GPUs on all ranks at once.
  void abort(const std::string& why) {
    std::shared_ptr<rl_comm> whole = hosts_if_there();
    if (whole != nullptr) {
      // Before the lock: a thread that opens a GPU holds it, and waits for others.
      check(rl().rl_abort(whole.get(), why.c_str()), timeout.load());
    }
    std::lock_guard<std::mutex> lock(devices_mutex_);
    for (const auto& [index, comm] : devices_) {
      check(rl().rl_abort(comm.get(), why.c_str()), timeout.load());
    }
  }

  // Returns the communicators of the hosts and of the GPUs.
  std::vector<std::shared_ptr<rl_comm>> all() {
    std::vector<std::shared_ptr<rl_comm>> comms{hosts()};
    std::lock_guard<std::mutex> lock(devices_mutex_);
    for (const auto& [index, comm] : devices_) {
      comms.push_back(comm);
    }
    return comms;
  }

  // Gives their memory back: all ranks together.
  void suspend() {
    for (const auto& comm : all()) {
      check(rl().rl_suspend(comm.get(), 0), timeout.load());
    }
  }

  // Makes it again: all ranks together.
  void resume() {
    for (const auto& comm : all()) {
      check(rl().rl_resume(comm.get()), timeout.load());
    }
  }

  // Returns the memory that this rank holds, in bytes by kind, and whether it is suspended.
  std::unordered_map<std::string, uint64_t> memory_stats() {
    std::unordered_map<std::string, uint64_t> total;
    for (const auto& comm : all()) {
      rl_memory_figures figures{};
      figures.size = sizeof(figures);
      check(rl().rl_memory_stats(comm.get(), &figures), timeout.load());
      total["shared_bytes"] += figures.shared;
      total["arena_bytes"] += figures.arena;
      total["mapped_bytes"] += figures.mapped;
      total["staging_bytes"] += figures.staging;
      total["message_bytes"] += figures.message;
      total["encryption_bytes"] += figures.encryption;
      total["pinned_bytes"] += figures.pinned;
      total["device_bytes"] += figures.device;
      total["device_buffer_bytes"] += figures.device_buffer;
      total["device_pinned_bytes"] += figures.device_pinned;
      total["suspended"] |= figures.suspended;
    }
    return total;
  }

  // Notes an operation in the record of calls, where there is one.
  uint64_t note(const Operation& operation, uint64_t number, Milliseconds limit) const {
    if (!Flight::instance().on()) {
      return 0;
    }
    Noted noted;
    noted.group = about;
    noted.number = number;
    noted.message = operation.type == c10d::OpType::SEND || operation.type == c10d::OpType::RECV ||
        operation.type == c10d::OpType::RECVANYSOURCE;
    noted.name = name_of(operation, rank);
    noted.inputs = operation.inputs_of;
    noted.outputs = operation.outputs_of;
    noted.timeout_ms = limit.count();
    return Flight::instance().begin(std::move(noted));
  }

  // Begins an event of the profiler, where one is active.
  Profiled profiled(const char* title, const Tensors& inputs) const {
    return title != nullptr && Profiled::active() ? Profiled(name + ":" + title, inputs) : Profiled();
  }

  // Makes the calls of an operation, one after the other.
  WorkPtr execute(Operation operation) {
    check_process();
    Profiled event = profiled(operation.title, operation.inputs);
    WithoutInterpreter others;
    uint64_t sequence = ++count;
    Group::Clock::time_point begun = group->now();
    bool limited = operation.timeout.count() > 0;
    Milliseconds limit = limited ? operation.timeout : timeout.load();
    uint64_t noted_as = note(operation, sequence, limit);
    rl_options options{};
    options.timeout_ms = limited ? operation.timeout.count() : 0;
    options.factor = operation.factor;
    std::string hints = active_hints();
    options.hints = hints.empty() ? nullptr : hints.c_str();
    if (operation.device.is_cuda()) {
      WorkPtr work = enqueue(std::move(operation), options, limit);
      Flight::instance().issued(noted_as);
      event.end();
      return noted(std::move(work));
    }
    std::shared_ptr<rl_comm> comm = on(operation.device);
    if (!operation.async) {
      for (const Call& call : operation.calls) {
        if (call(comm.get(), &options, nullptr) != 0) {
          std::rethrow_exception(failure(limit, described(operation.label, operation.memory)));
        }
      }
      operation.memory.finish();
      event.end();
      Flight::instance().ended(noted_as);
      return done(operation, sequence, begun);
    }
    auto state = std::make_unique<State>();
    std::exception_ptr failed;
    for (const Call& call : operation.calls) {
      rl_work* native = nullptr;
      if (call(comm.get(), &options, &native) != 0) {
        failed = failure(limit, described(operation.label, operation.memory));
        break;
      }
      if (native != nullptr) {
        state->calls.works.push_back(native);
      }
    }
    if (state->calls.works.empty()) {
      if (failed) {
        std::rethrow_exception(failed);
      }
      operation.memory.finish();
      event.end();
      Flight::instance().ended(noted_as);
      return done(operation, sequence, begun);
    }
    state->group = group;
    state->noted = failed ? 0 : noted_as;
    state->sequence = sequence;
    state->begun = begun;
    state->profiled = std::move(event);
    state->outputs = std::move(operation.result);
    state->calls.memory = std::move(operation.memory);
    if (failed) {
      state->calls.memory.drop_copies();
    }
    state->limit = limit;
    state->label = operation.label;
    // Where a later call failed, this keeps the memory of the earlier ones until they have ended.
    WorkPtr work = c10::make_intrusive<Pending>(rank, operation.type, state.release());
    if (failed) {
      std::rethrow_exception(failed);
    }
    return noted(std::move(work));
  }

  // Returns the work of an operation that has ended with success, if it is awaited, and tells the hooks.
  WorkPtr done(Operation& operation, uint64_t sequence, Group::Clock::time_point begun) {
    if (!operation.awaited && !coalescing && !group->hooked()) {
      return nullptr;
    }
    auto work = c10::make_intrusive<Done>(rank, operation.type, std::move(operation.result));
    group->succeeded(work->numbered(sequence, begun));
    return noted(std::move(work));
  }

  // Returns the work, if there is one, and remembers it where calls are being coalesced: their end waits for it.
  WorkPtr noted(WorkPtr work) {
    if (coalescing) {
      coalesced.push_back(work);
    }
    return work;
  }

  // Goes on with the ranks that these handles name; GPUs are opened anew by the first call for each.
  void reconfigure(const std::string& id, const std::vector<std::string>& handles, bool ordered, Milliseconds limit) {
    WithoutInterpreter others;
    std::vector<const char*> texts;
    for (const std::string& handle : handles) {
      texts.push_back(handle.c_str());
    }
    std::shared_ptr<rl_comm> comm = hosts_if_there();
    ROUNDELAY_CHECK(DistBackendError, comm != nullptr, "roundelay: the process group was shut down: make a new one");
    std::map<int, std::shared_ptr<rl_comm>> devices;
    {
      std::lock_guard<std::mutex> lock(devices_mutex_);
      devices.swap(devices_);
    }
    devices.clear();
    uint64_t time = std::max<int64_t>(limit.count(), 1);
    if (rl().rl_reconfigure(comm.get(), id.c_str(), texts.data(), texts.size(), ordered ? 1 : 0, time) != 0) {
      std::rethrow_exception(exception_of(last_error(), limit));
    }
    waits = false;
  }

  // Ends the part of this rank, after what was started.
  void shutdown() {
    if (!process.is_here()) {
      return; // What a child has is a copy: the group goes on.
    }
    WithoutInterpreter others;
    // Longer than torch takes, at most, to write its flight recorder.
    group->wait_for_hooks(std::chrono::seconds(40));
    {
      std::shared_ptr<rl_comm> ending;
      std::map<int, std::shared_ptr<rl_comm>> devices;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ending.swap(hosts_);
      }
      std::lock_guard<std::mutex> lock(devices_mutex_);
      devices.swap(devices_);
    }
    // What was pending has ended now, and may have had hooks called. At the end of the program no thread of theirs may
    // still want the interpreter.
    group->wait_for_all(std::chrono::seconds(20));
  }

  // Throws the error of a call that has failed.
  void check(int32_t status, Milliseconds limit) {
    if (status != 0) {
      std::rethrow_exception(failure(limit));
    }
  }

  // Returns the error of the last call; has the hooks of an abort called unless nothing has moved.
  std::exception_ptr failure(Milliseconds limit, const std::string& own = "") {
    Error error = last_error();
    if (ends_group(error)) {
      group->aborted();
    }
    return exception_of(also(std::move(error), own), limit);
  }

  bool coalescing = false;
  std::vector<WorkPtr> coalesced;
  std::vector<rl_message> messages;
  Operation batch;

  // Waits until the GPUs have done what their current streams have, and the operations beside them.
  void synchronize() {
    check_process();
    std::vector<int> used;
    std::vector<c10::Stream> waited;
    {
      std::lock_guard<std::mutex> lock(devices_mutex_);
      for (const auto& [index, comm] : devices_) {
        used.push_back(index);
      }
      for (const auto& [index, beside] : beside_) {
        waited.push_back(beside->stream);
      }
    }
    WithoutInterpreter others;
    for (int index : used) {
      current_stream(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index))).synchronize();
    }
    for (const c10::Stream& stream : waited) {
      stream.synchronize();
    }
  }

 private:
  // Returns the stream beside the current one of a GPU, in which work comes after what is in that.
  c10::Stream fork(at::Device device) {
    std::lock_guard<std::mutex> lock(devices_mutex_);
    std::unique_ptr<Beside>& beside = beside_[device.index()];
    if (!beside) {
      beside = std::make_unique<Beside>(device);
    }
    beside->follow();
    return beside->stream;
  }

  // Puts the calls of an operation into the current stream of its GPU; one that is asynchronous beside it, so that it goes
  // on together with what the caller puts there next.
  WorkPtr enqueue(Operation operation, rl_options options, Milliseconds limit) {
    // The library makes its GPU the current one of the thread; the caller's is another, perhaps.
    c10::DeviceGuard guard(operation.device);
    std::shared_ptr<rl_comm> comm = on(operation.device);
    c10::OptionalStreamGuard beside;
    if (operation.async) {
      beside.reset_stream(fork(operation.device));
      options.overlaps = 1;
    }
    options.memory = RL_CUDA;
    options.stream = stream_of(operation.device);
    for (const Call& call : operation.calls) {
      if (call(comm.get(), &options, nullptr) != 0) {
        std::rethrow_exception(failure(limit, described(operation.label, operation.memory)));
      }
    }
    operation.memory.finish();
    if (!operation.awaited && !coalescing) {
      return nullptr;
    }
    return c10::make_intrusive<OnStream>(
        rank, operation.type, std::move(operation.result), operation.memory.kept(), operation.device,
        operation.async);
  }

  // Returns the current stream of a GPU as the driver names it.
  static void* stream_of(at::Device device) {
    void* stream = nullptr;
    if (StreamFunction current = stream_function()) {
      constexpr int cuda = 2;
      ROUNDELAY_CHECK(Error, current(cuda, device.index(), &stream) == 0, "roundelay: torch has no current stream on ", device);
      return given_stream(stream);
    }
    pybind11::gil_scoped_acquire gil;
    try {
      stream = reinterpret_cast<void*>(pybind11::handle(python().stream)(device.index()).cast<uintptr_t>());
    } catch (pybind11::error_already_set& failed) {
      throw_python(failed);
    }
    return given_stream(stream);
  }

  static void free(rl_comm* comm) {
    if (comm != nullptr) {
      rl().rl_free(comm);
    }
  }

  // Returns the hints of the `with` blocks. The list is looked at without the interpreter's lock, as it is mostly
  // empty.
  static std::string active_hints() {
    if (PyList_GET_SIZE(python().active) == 0) {
      return "";
    }
    pybind11::gil_scoped_acquire gil;
    try {
      return pybind11::handle(python().hints)().cast<std::string>();
    } catch (pybind11::error_already_set& failed) {
      throw_python(failed);
    }
  }

  mutable std::mutex mutex_;
  std::mutex devices_mutex_;
  std::shared_ptr<rl_comm> hosts_;
  std::map<int, std::shared_ptr<rl_comm>> devices_;
  std::map<int, std::unique_ptr<Beside>> beside_;
};

} // namespace roundelay
