// The backend of torch.distributed in C++, over the C interface of roundelay; compiled at the user's, against the torch
// that is there.

#include "window.h"

#include <numeric>
#include <set>

namespace roundelay {

using c10d::OpType;

class Backend;

// Returns an operator for a type.
inline Operator operator_of(const c10d::ReduceOp& given, const Tensor& tensor) {
  Operator found{operator_for<c10d::ReduceOp>(given.op_, tensor.scalar_type())};
  if (found.op == RL_PREMUL_SUM) {
    const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(given.supplement_.get());
    found.factor = supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                                       : supplement->double_factor;
  }
  return found;
}

// Backends that were not shut down, for the end of the program.
struct Alive {
  std::mutex mutex;
  std::set<Backend*> all;
};

class Backend : public c10d::Backend {
 public:
  Backend(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout, std::string hints,
      std::string name, std::vector<uint64_t> ranks, std::string known_as, bool waits)
      : c10d::Backend(rank, size),
        store_(std::move(store)),
        hints_(std::move(hints)),
        options_(c10::make_intrusive<Options>("roundelay", timeout)),
        calls_(
            waits ? alone(hints_, timeout) : join(*store_, rank, size, hints_, timeout), timeout, std::move(known_as)) {
    calls_.rank = rank;
    calls_.waits = waits;
    calls_.about->name = name;
    calls_.about->ranks = ranks;
    options_->group_name = std::move(name);
    options_->global_ranks_in_group = std::move(ranks);
    Alive& alive = of_process<Alive>();
    std::lock_guard<std::mutex> lock(alive.mutex);
    alive.all.insert(this);
  }

  ~Backend() override {
    forget();
    calls_.shutdown();
    forget_monitor();
  }

  const std::string getBackendName() const override {
    return "roundelay";
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return options_;
  }
  bool supportsSplitting() const override {
    return true;
  }
  bool supportsCoalescing() const override {
    return true;
  }

  // The CPU has no index. Operations on these tensors are not copied on the way: the ranks of a host map their memory.
  bool supportsTensorAlloc(c10::DeviceIndex index) override {
    return index < 0;
  }
  Tensor allocateTensor(long size, at::TensorOptions options) override {
    ROUNDELAY_CHECK(
        NotImplementedError, options.device().is_cpu(), "roundelay does not support the allocation of tensors on ", options.device(),
        ": use torch.empty");
    ROUNDELAY_CHECK(
        ValueError, size >= 0, "roundelay: allocate_tensor: the size is ", size, ": elements are counted from 0");
    rl_allocation* owner = nullptr;
    void* address = nullptr;
    uint64_t bytes = static_cast<uint64_t>(size) * options.dtype().itemsize();
    {
      WithoutInterpreter others;
      calls_.check(rl().rl_alloc(calls_.hosts().get(), bytes, &owner, &address), calls_.timeout.load());
    }
    return at::from_blob(address, {size}, [owner](void*) { rl().rl_allocation_free(owner); }, options);
  }


  // In place, or to one rank.

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    const Tensor& tensor = one(tensors, "all_reduce");
    if (tensor.layout() == at::kSparse) {
      return allreduce_sparse(tensors, opts);
    }
    Operation operation = begin(OpType::ALLREDUCE, "all_reduce", opts, tensors, tensors);
    add_all_reduce(operation, tensor, operator_of(opts.reduceOp, tensor));
    return calls_.execute(std::move(operation));
  }

  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    const Tensor& tensor = one(tensors, "all_reduce");
    Profiled event = calls_.profiled("sparse_all_reduce", tensors);
    Group::Clock::time_point begun = calls_.group->now();
    auto begin = [&] {
      Operation operation;
      operation.type = OpType::_ALLREDUCE_SPARSE;
      operation.label = "all_reduce";
      operation.timeout = opts.timeout;
      operation.device = tensor.device();
      return operation;
    };
    sum_sparse(tensor, operator_of(opts.reduceOp, tensor), rank_, size_, [&](OperationCalls part) {
      Operation operation = begin();
      static_cast<OperationCalls&>(operation) = std::move(part);
      calls_.execute(std::move(operation));
    });
    event.end();
    Operation operation = begin();
    operation.result = tensors;
    return calls_.done(operation, calls_.count, begun);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    Operation operation = begin(OpType::ALLREDUCE_COALESCED, "all_reduce", opts, tensors, tensors);
    for (const Tensor& tensor : tensors) {
      add_all_reduce(operation, tensor, operator_of(opts.reduceOp, tensor));
    }
    return calls_.execute(std::move(operation));
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    const Tensor& tensor = one(tensors, "broadcast");
    Operation operation = begin(OpType::BROADCAST, "broadcast", opts, tensors, tensors);
    add_broadcast(operation, tensor, rank_, opts.rootRank);
    return calls_.execute(std::move(operation));
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const Tensor& tensor = one(tensors, "reduce");
    Operation operation = begin(OpType::REDUCE, "reduce", opts, tensors, tensors);
    add_reduce(operation, tensor, rank_, opts.rootRank, operator_of(opts.reduceOp, tensor));
    return calls_.execute(std::move(operation));
  }

  // From all to all.

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    const Tensor& tensor = one(inputs, "all_gather");
    Operation operation = begin(OpType::ALLGATHER, "all_gather", opts, joined(outputs), inputs);
    add_all_gather(operation, one(outputs, "all_gather"), tensor, rank_, size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr allgather_coalesced(
      std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    Operation operation = begin(OpType::ALLGATHER_COALESCED, "all_gather", opts, joined(outputs), inputs);
    for (size_t index = 0; index < inputs.size(); ++index) {
      Tensors listed;
      for (const Tensors& each : outputs) {
        listed.push_back(each.at(index));
      }
      add_all_gather(operation, listed, inputs[index], rank_, size_);
    }
    return calls_.execute(std::move(operation));
  }

  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) override {
    Operation operation = begin(OpType::_ALLGATHER_BASE, "all_gather", opts, {output}, {input});
    add_all_gather_single(operation, output, input, size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    same_number(outputs, inputs, "all_gather_single");
    Operation operation = begin(OpType::_ALLGATHER_BASE, "all_gather", opts, outputs, inputs);
    for (size_t index = 0; index < inputs.size(); ++index) {
      add_all_gather_single(operation, outputs[index], inputs[index], size_);
    }
    return calls_.execute(std::move(operation));
  }

  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) override {
    const Tensor& output = one(outputs, "reduce_scatter");
    Operation operation = begin(OpType::REDUCE_SCATTER, "reduce_scatter", opts, outputs, joined(inputs));
    add_reduce_scatter(
        operation, output, one(inputs, "reduce_scatter"), operator_of(opts.reduceOp, output), rank_, size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    Operation operation = begin(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", opts, {output}, {input});
    add_reduce_scatter_single(operation, output, input, operator_of(opts.reduceOp, output), size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override {
    same_number(outputs, inputs, "reduce_scatter_single");
    Operation operation = begin(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", opts, outputs, inputs);
    for (size_t index = 0; index < inputs.size(); ++index) {
      add_reduce_scatter_single(
          operation, outputs[index], inputs[index], operator_of(opts.reduceOp, outputs[index]), size_);
    }
    return calls_.execute(std::move(operation));
  }

  WorkPtr alltoall_base(
      Tensor& output, Tensor& input, std::vector<int64_t>& received, std::vector<int64_t>& sent,
      const c10d::AllToAllOptions& opts) override {
    Operation operation = begin(OpType::ALLTOALL_BASE, "all_to_all", opts, {output}, {input});
    add_all_to_all_single(operation, output, input, received, sent, size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    Operation operation = begin(OpType::ALLTOALL, "all_to_all", opts, outputs, inputs);
    add_all_to_all(operation, outputs, inputs, size_);
    return calls_.execute(std::move(operation));
  }

  // From and to a root.

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    const Tensor& tensor = one(inputs, "gather");
    Operation operation = begin(OpType::GATHER, "gather", opts, joined(outputs), inputs);
    add_gather(operation, outputs, tensor, rank_, opts.rootRank, size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override {
    const Tensor& tensor = one(outputs, "scatter");
    Operation operation = begin(OpType::SCATTER, "scatter", opts, outputs, joined(inputs));
    operation.device = tensor.device();
    add_scatter(operation, tensor, inputs, rank_, opts.rootRank, size_);
    return calls_.execute(std::move(operation));
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    // As NCCL's, it comes after what the GPUs have been given.
    calls_.synchronize();
    Operation operation = begin(OpType::BARRIER, "barrier", opts, {}, {});
    add_barrier(operation);
    return calls_.execute(std::move(operation));
  }

  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override {
    Milliseconds limit = opts.timeout.count() < 0 ? calls_.timeout.load() : opts.timeout;
    pybind11::gil_scoped_acquire gil;
    try {
      if (monitor_ == nullptr) {
        monitor_ = pybind11::handle(python().monitor)(pybind11::cast(store_), rank_, size_).release().ptr();
      }
      pybind11::handle monitor = monitor_;
      monitor(static_cast<double>(limit.count()) / 1000.0, wait_all_ranks);
    } catch (pybind11::error_already_set& failed) {
      throw_python(failed);
    }
  }

  // Between two ranks.

  WorkPtr send(Tensors& tensors, int peer, int tag) override {
    return message(OpType::SEND, one(tensors, "send"), peer, tag);
  }
  WorkPtr recv(Tensors& tensors, int peer, int tag) override {
    return message(OpType::RECV, one(tensors, "recv"), peer, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return message(OpType::RECVANYSOURCE, one(tensors, "recv"), -1, tag);
  }

  void startCoalescing() override {
    calls_.coalesced.clear();
    calls_.messages.clear();
    calls_.batch = Operation();
    calls_.coalescing = true;
  }

  WorkPtr endCoalescing() override {
    calls_.coalescing = false;
    std::vector<WorkPtr> works = std::move(calls_.coalesced);
    calls_.coalesced.clear();
    if (!calls_.messages.empty()) {
      works.push_back(messages());
    }
    if (works.size() == 1) {
      return works[0];
    }
    return c10::make_intrusive<Together>(rank_, std::move(works));
  }

  // Groups, and the end.

  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& opts) override {
    calls_.check_process();
    auto found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) {
      return nullptr;
    }
    const auto& parents = options_->global_ranks_in_group;
    std::vector<uint64_t> global;
    for (int rank : ranks) {
      global.push_back(parents.size() == static_cast<size_t>(size_) ? parents.at(rank) : rank);
    }
    std::string hints = opts ? hints_of(opts) : "";
    return c10::make_intrusive<Backend>(
        store, static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()),
        opts ? opts->timeout : options_->timeout, hints.empty() ? hints_ : hints, opts ? opts->group_name : "",
        std::move(global), calls_.name, false);
  }

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override {
    return true;
  }

  c10d::ReconfigureHandle get_reconfigure_handle() const override {
    std::shared_ptr<rl_comm> comm = const_cast<Calls&>(calls_).hosts_if_there();
    ROUNDELAY_CHECK(DistBackendError, comm != nullptr, "roundelay: the process group was shut down: make a new one");
    std::string handle(1024, '\0');
    uint64_t length = 0;
    if (rl().rl_reconfigure_handle(comm.get(), handle.data(), handle.size(), &length) != 0) {
      std::rethrow_exception(exception_of(last_error(), calls_.timeout.load()));
    }
    handle.resize(length);
    return handle;
  }

  // Rank and size are others when it returns; the work has ended then.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& opts) override {
    ROUNDELAY_CHECK(
        Error, used_.count(opts.uuid) == 0, "roundelay: reconfigure: uuid ", opts.uuid,
        " was already used by this process group: pass one that no generation had");
    std::string hints;
    for (const auto& [key, value] : opts.hints) {
      calls_.check(rl().rl_hint_known(key.c_str()), calls_.timeout.load());
      hints += (hints.empty() ? "" : ",") + key + "=" + value;
    }
    const auto* list = std::get_if<std::vector<c10d::ReconfigureHandle>>(&opts.handles);
    std::vector<std::string> handles;
    if (list != nullptr) {
      handles = *list;
    } else {
      const auto& set = std::get<std::unordered_set<c10d::ReconfigureHandle>>(opts.handles);
      handles.assign(set.begin(), set.end());
    }
    Milliseconds limit = opts.timeout.value_or(calls_.timeout.load());
    calls_.reconfigure(std::to_string(opts.uuid), handles, list != nullptr, limit);
    used_.insert(opts.uuid);
    std::shared_ptr<rl_comm> comm = calls_.hosts();
    if (!hints.empty()) {
      calls_.check(rl().rl_set_hints(comm.get(), hints.c_str()), limit);
    }
    calls_.rank = rank_ = static_cast<int>(rl().rl_rank(comm.get()));
    size_ = static_cast<int>(rl().rl_size(comm.get()));
    options_->global_ranks_in_group.resize(size_);
    std::iota(options_->global_ranks_in_group.begin(), options_->global_ranks_in_group.end(), 0);
    // What was recorded before keeps the ranks that there were.
    calls_.about = std::make_shared<About>(*calls_.about);
    calls_.about->ranks = options_->global_ranks_in_group;
    forget_monitor();
    Operation operation;
    operation.type = OpType::UNKNOWN;
    return calls_.done(operation, calls_.count, calls_.group->now());
  }
#endif

#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override {
    return true;
  }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<Tensor>& tensor) override {
    // A window does not keep its group alive.
    c10::weak_intrusive_ptr<Backend> group(c10::intrusive_ptr<Backend>::reclaim_copy(this));
    auto comm_of = [group](at::Device device) {
      const auto found = group.lock();
      ROUNDELAY_CHECK(DistBackendError, found, "roundelay: the process group of the window is gone");
      return found->calls_.on(device);
    };
    return c10::make_intrusive<Window>(comm_of, rank_, calls_.timeout.load(), tensor);
  }
#endif

  void setTimeout(Milliseconds timeout) override {
    options_->timeout = timeout;
    calls_.set_timeout(timeout);
  }

  uint64_t getSequenceNumberForGroup() override {
    return calls_.count;
  }
  void setSequenceNumberForGroup() override {}

  void waitForPendingWorks() override {
    calls_.check_process();
    WithoutInterpreter others;
    calls_.group->wait_for_pending(&check_signals);
  }

  // Memory, on the hosts and on the GPUs.

  void suspend() override {
    waitForPendingWorks();
    WithoutInterpreter others;
    calls_.suspend();
  }
  void resume() override {
    WithoutInterpreter others;
    calls_.resume();
  }
  std::unordered_map<std::string, uint64_t> getMemoryStats() override {
    WithoutInterpreter others;
    return calls_.memory_stats();
  }

  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    ROUNDELAY_CHECK(DistBackendError, !hasHooks(),
        "roundelay: the process group has a completion hook already: register one that calls both");
    onCompletionHook_ = std::move(hook);
    calls_.group->set_on_work([hook = onCompletionHook_](std::shared_ptr<c10d::WorkInfo> info) {
      // The hook is Python.
      if (interpreter_lives()) {
        hook(std::move(info));
      }
    });
  }
  void enableCollectivesTiming() override {}

  c10d::ErrorType getError() override {
    return rl().rl_is_aborted(calls_.hosts_if_there().get()) != 0 ? c10d::ErrorType::REMOTE_ERROR
                                                                  : c10d::ErrorType::SUCCESS;
  }

  void abort() override {
    calls_.check_process();
    WithoutInterpreter others;
    calls_.group->aborted();
    abort_because("abort() was called on the process group");
  }

  void abort_because(const std::string& why) {
    calls_.abort(why);
  }

  void shutdown() override {
    describe();
    forget();
    calls_.shutdown();
  }

  // Lets the record of calls know the group's description, which torch sets after the group was made.
  void describe() {
    calls_.about->description = getGroupDesc();
  }

#ifdef ROUNDELAY_ABORT_HOOKS
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override {
    calls_.group->add_on_abort(id, std::move(hook));
  }
  void unregisterAbortHook(int64_t id) override {
    calls_.group->drop_on_abort(id);
  }
#endif

#ifdef ROUNDELAY_COMPLETION_HOOKS
  bool supportsAbortHooks() const override {
    return true;
  }
  // No thread waits for work in the streams of GPUs, so its end is not known.
  bool supportsCompletionHooks() const override {
    return !at::hasCUDA();
  }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    calls_.group->add_on_completion(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override {
    calls_.group->drop_on_completion(id);
  }
#endif

 private:
  template <class Given>
  Operation begin(OpType type, const char* label, const Given& opts, Tensors result, const Tensors& inputs) {
    Operation operation;
    operation.type = type;
    operation.label = label;
    operation.timeout = opts.timeout;
    operation.async = opts.asyncOp;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8
    operation.awaited = opts.asyncOp;
#endif
    operation.result = std::move(result);
    if (!inputs.empty()) {
      operation.device = inputs[0].device();
    }
    operation.title = label;
    if (Flight::instance().on()) {
      operation.inputs_of = sides(inputs);
      operation.outputs_of = sides(operation.result);
    }
    if (Profiled::active()) {
      operation.inputs = inputs;
    }
    return operation;
  }

  static void same_number(const Tensors& outputs, const Tensors& inputs, const char* what) {
    ROUNDELAY_CHECK(
        ValueError, outputs.size() == inputs.size(), what, ": ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  }

  WorkPtr message(OpType type, const Tensor& tensor, int peer, int tag) {
    bool sends = type == OpType::SEND;
    Operation operation;
    operation.type = type;
    operation.label = "send/recv";
    operation.title = sends ? "send" : type == OpType::RECV ? "recv" : "recvAnySource";
    if (Profiled::active()) {
      operation.inputs = {tensor};
    }
    operation.async = true;
    operation.peer = peer;
    (sends ? operation.inputs_of : operation.outputs_of) = sides({tensor});
    operation.result = {tensor};
    operation.device = tensor.device();
    Address at = address(sends ? operation.memory.readable(tensor) : operation.memory.writable(tensor));
    if (tensor.is_cuda()) {
      ROUNDELAY_CHECK(
          NotImplementedError, type != OpType::RECVANYSOURCE,
          "roundelay does not support recv from any source into a tensor on a GPU; name the rank: src=…");
      ROUNDELAY_CHECK(
          NotImplementedError, tag == 0, "roundelay does not support tag ", tag,
          " for a tensor on a GPU with Options(compiled=True); leave the tag out, or leave compiled unset");
      if (calls_.coalescing) {
        calls_.messages.push_back({at.ptr, at.count, at.dtype, static_cast<uint32_t>(peer), sends ? 1 : 0});
        Operation& batch = calls_.batch;
        batch.device = tensor.device();
        batch.memory.append(std::move(operation.memory));
        batch.result.push_back(tensor);
        return c10::make_intrusive<Done>(rank_, type, Tensors{tensor}, peer);
      }
    }
    uint32_t other = type == OpType::RECVANYSOURCE ? RL_ANY_RANK : static_cast<uint32_t>(peer);
    operation.calls.push_back([=](const rl_comm* comm, const rl_options* options, rl_work** work) {
      return sends ? rl().rl_send(comm, at.ptr, at.count, at.dtype, other, tag, options, work)
                   : rl().rl_recv(comm, at.ptr, at.count, at.dtype, other, tag, options, work);
    });
    return calls_.execute(std::move(operation));
  }

  // Issues the messages that were collected as one.
  WorkPtr messages() {
    Operation operation = std::move(calls_.batch);
    operation.type = OpType::COALESCED;
    operation.label = "send/recv";
    auto list = std::make_shared<std::vector<rl_message>>(std::move(calls_.messages));
    calls_.messages.clear();
    operation.calls.push_back([list](const rl_comm* comm, const rl_options* options, rl_work** work) {
      return rl().rl_batch(comm, list->data(), list->size(), options, work);
    });
    return calls_.execute(std::move(operation));
  }

  static std::string hints_of(const c10::intrusive_ptr<Options>& opts) {
    pybind11::gil_scoped_acquire gil;
    try {
      return pybind11::handle(python().group_hints)(pybind11::cast(opts)).cast<std::string>();
    } catch (pybind11::error_already_set& failed) {
      throw_python(failed);
    }
  }

  void forget() {
    Alive& alive = of_process<Alive>();
    std::lock_guard<std::mutex> lock(alive.mutex);
    alive.all.erase(this);
  }

  // It knows rank and size.
  void forget_monitor() {
    if (monitor_ != nullptr && interpreter_lives()) {
      pybind11::gil_scoped_acquire gil;
      Py_CLEAR(monitor_);
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string hints_;
  c10::intrusive_ptr<Options> options_;
  Calls calls_;
  PyObject* monitor_ = nullptr;
  std::set<int64_t> used_;
};

// Returns the record of calls.
inline pybind11::list calls(bool stacks) {
  {
    Alive& alive = of_process<Alive>();
    std::lock_guard<std::mutex> lock(alive.mutex);
    for (Backend* backend : alive.all) {
      backend->describe();
    }
  }
  return Flight::instance().calls(stacks);
}

// Ends what the program has not ended.
inline void end(const std::string& why) {
  std::vector<Backend*> left;
  {
    Alive& alive = of_process<Alive>();
    std::lock_guard<std::mutex> lock(alive.mutex);
    left.assign(alive.all.begin(), alive.all.end());
  }
  for (Backend* backend : left) {
    if (!why.empty()) {
      backend->abort_because(why);
    }
    backend->shutdown();
  }
}

} // namespace roundelay

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "The backend of torch.distributed in C++.";
  module.def(
      "load",
      [](const std::string& path, const pybind11::dict& parts) {
        auto& python = roundelay::python();
        auto part = [&](const char* name) { return pybind11::object(parts[name]).release().ptr(); };
        python.error = part("error");
        python.timed_out = part("timed_out");
        python.active = part("active");
        python.hints = part("hints");
        python.group_hints = part("group_hints");
        python.monitor = part("monitor");
        python.stream = part("stream");
        roundelay::Flight::instance().keep(pybind11::object(parts["kept"]).cast<size_t>());
        roundelay::Group::on_failure() = [write = pybind11::handle(part("on_failure"))] {
          if (roundelay::interpreter_lives()) {
            pybind11::gil_scoped_acquire gil;
            write();
          }
        };
        roundelay::find_stream_function(pybind11::object(parts["exchange"]).ptr());
        roundelay::load(path);
      },
      "Find the native module at a path, and keep the functions of the Python half.");
  module.def(
      "join",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double seconds, std::string hints,
         std::string name, std::vector<uint64_t> ranks, std::string known_as,
         bool waits) -> c10::intrusive_ptr<c10d::Backend> {
        auto limit = roundelay::Milliseconds(static_cast<int64_t>(seconds * 1000.0));
        return c10::make_intrusive<roundelay::Backend>(
            store, rank, size, limit, std::move(hints), std::move(name), std::move(ranks), std::move(known_as), waits);
      },
      "Make the backend of a group whose ranks share a store, for a backend of a name: collective. Or one that waits for "
      "`reconfigure`.");
  module.def(
      "set_timeout",
      [](const c10::intrusive_ptr<c10d::Backend>& backend, double seconds) {
        auto* own = dynamic_cast<roundelay::Backend*>(backend.get());
        ROUNDELAY_CHECK(ValueError, own != nullptr, "roundelay: the backend ", backend->getBackendName(), " is another's");
        own->setTimeout(roundelay::Milliseconds(static_cast<int64_t>(seconds * 1000.0)));
      },
      "Set the timeout of a backend: torch before 2.14 does not show that to Python.");
  module.def("calls", &roundelay::calls, "Return the latest calls, the oldest first; with the stacks of their callers or without.");
  module.def("end", &roundelay::end, "Shut down all backends that are left; abort them first if there is a reason.");
}
