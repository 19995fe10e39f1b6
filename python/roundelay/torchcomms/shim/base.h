// One rank's part in a communicator: its life, its settings and its parts, and what all operations have in common.

#pragma once

#include <comms/torchcomms/utils/Utils.hpp>

#include "join.h"
#include "window.h"
#include "work.h"

#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <variant>

namespace torch::comms {
namespace {

constexpr const char* elsewhere =
    ": make a communicator for that device; torch.distributed makes one for all devices of one name, so name the device"
    " too, as in init_process_group(\"cuda:roundelay\")";

class Base : public TorchCommBackend {
 public:
  Base() {
    listener_->set([this] { tell(); });
  }

  ~Base() override {
    listener_->set(nullptr);
    if (host_ != nullptr) {
      ROUNDELAY_WARN("roundelay: the communicator ", name_, " ends without finalize()");
      release();
    }
  }

  // Its life.

  void init(at::Device device, const std::string& name, const CommOptions& options) override {
    if (joined_ || host_ != nullptr) {
      refuse("the communicator ", name_, finalized_ ? " was finalized already" : " is there already");
    }
    if (device.type() != at::kCPU && device.type() != at::kCUDA) {
      refuse("the device is ", device, ": there are cpu and cuda");
    }
    if (options.enable_reconfigure) {
      return wait(device, name, options);
    }
    const auto [rank, size] = query_ranksize();
    if (rank < 0 || size < 1 || rank >= size) {
      refuse("rank ", rank, " of ", size, ": start by `torchrun`, or set TORCHCOMM_RANK and TORCHCOMM_SIZE");
    }
    // What the ranks need only until they have joined ends with this function.
    const Meeting meeting =
        options.store ? Meeting{below(options.store, name, rank), nullptr} : meet(name, rank, options.timeout);
    join(device, name, options, meeting.store, rank, size);
  }

  void finalize() override {
    there("finalize");
    finalized_ = true;
    release();
    listener_->wait_for_all(std::chrono::seconds(20));
  }

  int getRank() const override {
    return rank_;
  }

  int getSize() const override {
    return size_;
  }

  std::string_view getBackendName() const override {
    return "roundelay";
  }

  std::string_view getBackendVersion() const override {
    return rl().rl_version();
  }

  std::string_view getCommName() const override {
    return name_;
  }

  const CommOptions& getOptions() const override {
    return options_;
  }

  const at::Device& getDevice() const override {
    return device_;
  }

  // What has no `override` here and below is not there in the interface of torchcomms 0.3.

  void setTimeout(milliseconds timeout) {
    there("set_timeout");
    check(rl().rl_set_timeout(host_, limit_of(timeout)));
    if (comm_ != nullptr && comm_ != host_) {
      check(rl().rl_set_timeout(comm_, limit_of(timeout)));
    }
    options_.timeout = timeout;
  }

  void setHints(Hints hints) {
    live("set_hints");
    check(rl().rl_set_hints(comm_, text_of(hints).c_str()));
    options_.hints = std::move(hints);
  }

  bool isAbortSupported() const override {
    return true;
  }

  bool isAborted() const override {
    return host_ != nullptr && rl().rl_is_aborted(host_) != 0;
  }

  void abort() override {
    there("abort");
    tell();
    check(rl().rl_abort(host_, "abort() was called on the communicator"));
    if (comm_ != nullptr && comm_ != host_) {
      check(rl().rl_abort(comm_, "abort() was called on the communicator"));
    }
  }

  bool isInitialized() const override {
    return joined_ && !finalized_;
  }

  // Nothing needs registration.
  void tensor_register(const at::Tensor&) override {}
  void tensor_deregister(const at::Tensor&) override {}

  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override {
    live("new_window");
    auto window = std::make_shared<Window>(host_, comm_, device_, size_, options_.timeout);
    if (tensor) {
      window->tensor_register(*tensor, true);
    }
    return window;
  }

  bool supportsReconfigure() const {
    return true;
  }

  InitHandle getInitHandle() const override {
    there("getInitHandle");
    std::string handle(1024, '\0');
    uint64_t length = 0;
    check(rl().rl_reconfigure_handle(host_, handle.data(), handle.size(), &length));
    handle.resize(length);
    return handle;
  }

  // Rank and size are others when it returns; the work has ended then.
  c10::intrusive_ptr<TorchWork> reconfigure(const ReconfigureOptions& options) override {
    there("reconfigure");
    if (used_.count(options.uuid) != 0) {
      refuse("reconfigure: uuid ", options.uuid, " was already used by ", name_, ": pass another one");
    }
    std::vector<const char*> handles;
    const bool ordered = std::holds_alternative<std::vector<InitHandle>>(options.handles);
    std::visit(
        [&](const auto& all) {
          for (const InitHandle& handle : all) {
            handles.push_back(handle.c_str());
          }
        },
        options.handles);
    if (comm_ != host_) {
      rl().rl_free(comm_);
      comm_ = nullptr;
    }
    const milliseconds given = options.timeout.value_or(options_.timeout);
    const uint64_t limit = limit_of(given.count() > 0 ? given : options_.timeout);
    const std::string id = std::to_string(options.uuid);
    check(rl().rl_reconfigure(host_, id.c_str(), handles.data(), handles.size(), ordered ? 1 : 0, limit));
    used_.insert(options.uuid);
    told_ = false;
    rank_ = static_cast<int>(rl().rl_rank(host_));
    size_ = static_cast<int>(rl().rl_size(host_));
    open();
    if (!options.hints.empty()) {
      check(rl().rl_set_hints(comm_, text_of(options.hints).c_str()));
    }
    return c10::make_intrusive<TorchWorkCompleted>();
  }

  // A persistent all_gather is one whose output is known: nothing else is set up before the first call.
  AllGatherPHandle all_gather_p_init(at::Tensor& output, const AllGatherPInitOptions& options) override {
    live("all_gather_p_init");
    if (output.numel() % size_ != 0) {
      refuse("all_gather_p_init: the output has ", output.numel(), " elements, which ", size_, " ranks do not divide");
    }
    std::lock_guard<std::mutex> lock(persistent_mutex_);
    auto made = std::make_unique<PersistentGather>(PersistentGather{output, options.hints, options.timeout});
    return persistent_.emplace(made.get(), std::move(made)).first->first;
  }

  c10::intrusive_ptr<TorchWork> all_gather_p_exec(
      AllGatherPHandle handle, const at::Tensor& input, bool async_op, const AllGatherPExecOptions& options) override {
    live("all_gather_p_exec");
    const PersistentGather found = persistent(handle, "all_gather_p_exec");
    AllGatherSingleOptions own;
    own.hints = found.hints;
    for (const auto& [key, value] : options.hints) {
      own.hints[key] = value;
    }
    own.timeout = options.timeout.count() > 0 ? options.timeout : found.timeout;
    at::Tensor output = found.output;
    return all_gather_single(output, input, async_op, own);
  }

  void all_gather_p_free(AllGatherPHandle handle) override {
    (void)persistent(handle, "all_gather_p_free");
    std::lock_guard<std::mutex> lock(persistent_mutex_);
    persistent_.erase(handle);
  }

  std::shared_ptr<TorchCommBackend> split(
      const std::vector<int>& ranks, const std::string& name, const CommOptions& options) override {
    live("split");
    if (!store_) {
      refuse("split: ", name_, " was made with enable_reconfigure and has no store: make a part of other handles");
    }
    std::set<int> seen;
    std::string listed;
    for (const int rank : ranks) {
      if (rank < 0 || rank >= size_) {
        refuse("split: rank ", rank, " must be in range [0, ", size_, ")");
      }
      if (!seen.insert(rank).second) {
        refuse("split: rank ", rank, " is listed twice");
      }
      listed += "," + std::to_string(rank);
    }
    if (ranks.empty()) {
      return nullptr;
    }
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) {
      refuse("split: rank ", rank_, " is not in the list: pass an empty one on ranks that are in no part");
    }
    CommOptions merged = options;
    merged.hints.insert(options_.hints.begin(), options_.hints.end());
    const int rank = static_cast<int>(own - ranks.begin());
    auto part = another();
    // Parts of the same name are distinguished by their ranks.
    part->join(device_, name, merged, below(store_, name + listed, rank), rank, static_cast<int>(ranks.size()));
    return part;
  }

 protected:
  // Calls the abort hooks, once.
  void tell() {
    if (!told_.exchange(true)) {
      runAbortHooks();
    }
  }

  // Returns a backend that has not joined yet.
  virtual std::shared_ptr<Base> another() const = 0;

  void join(
      at::Device device, const std::string& name, const CommOptions& options,
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
    begin(device, name, options, rank);
    store_ = store;
    host_ = roundelay::JoinStore(*store, nullptr).join(rank, size, text_of(options.hints), limit_of(options.timeout));
    check(host_ == nullptr ? 1 : 0);
    rank_ = rank;
    size_ = size;
    open();
  }

  // Does not wait: the first ranks come by `reconfigure`.
  void wait(at::Device device, const std::string& name, const CommOptions& options) {
    begin(device, name, options, query_ranksize().first);
    check(rl().rl_alone(text_of(options.hints).c_str(), &host_));
  }

  void begin(at::Device device, const std::string& name, const CommOptions& options, int rank) {
    load_native();
    if (device.is_cuda()) {
      // Programs rely on what torchcomms' other backends do: each rank has a GPU, which is the current one from now on.
      const c10::impl::VirtualGuardImpl gpus(device.type());
      if (!device.has_index()) {
        const int index = rank < 0 ? gpus.getDevice().index() : rank % std::max<int>(gpus.deviceCount(), 1);
        device.set_index(static_cast<c10::DeviceIndex>(index));
      }
      gpus.setDevice(device);
    }
    device_ = device;
    name_ = name;
    options_ = options;
    options_.store = nullptr;
  }

  // Has the ranks that came together be ready for operations, on their GPUs if that is the device.
  void open() {
    joined_ = true;
    const uint64_t timeout = limit_of(options_.timeout);
    if (timeout != 0) {
      check(rl().rl_set_timeout(host_, timeout));
    }
    comm_ = host_;
    if (device_.is_cuda()) {
      comm_ = nullptr;
      check(rl().rl_cuda(host_, device_.index(), &comm_));
      if (timeout != 0) {
        check(rl().rl_set_timeout(comm_, timeout));
      }
    }
  }

  void release() {
    if (comm_ != host_) {
      rl().rl_free(comm_);
    }
    rl().rl_free(host_);
    comm_ = host_ = nullptr;
    store_.reset();
  }

  void there(const char* what) const {
    if (host_ == nullptr) {
      refuse(what, ": the communicator ", name_, joined_ ? " was finalized already" : " is not initialized");
    }
  }

  void live(const char* what) const {
    there(what);
    if (comm_ == nullptr) {
      refuse(what, ": the communicator ", name_, " has no ranks yet: call reconfigure first");
    }
  }

  struct PersistentGather {
    at::Tensor output;
    Hints hints;
    milliseconds timeout;
  };

  PersistentGather persistent(AllGatherPHandle handle, const char* what) const {
    std::lock_guard<std::mutex> lock(persistent_mutex_);
    const auto found = persistent_.find(handle);
    if (found == persistent_.end()) {
      refuse(what, ": the handle is none of ", name_, ", or was freed: call all_gather_p_init");
    }
    return *found->second;
  }

  mutable std::mutex persistent_mutex_;
  std::map<AllGatherPHandle, std::unique_ptr<PersistentGather>> persistent_;

  void peer(int rank, const char* what) const {
    if (rank < 0 || rank >= size_) {
      refuse(what, " must be in range [0, ", size_, "), but got ", rank);
    }
  }

  void same_size(const Tensors& tensors, const at::Tensor& one, const char* what, const char* which) const {
    for (const auto& tensor : tensors) {
      if (tensor.numel() != one.numel()) {
        refuse(what, ": all tensors of ", which, " must have ", one.numel(), " elements, but one has ", tensor.numel());
      }
    }
  }

  // Returns the first rows of a tensor, which are those that are exchanged.
  at::Tensor rows(const at::Tensor& tensor, const std::vector<uint64_t>& sizes, const char* side) const {
    const uint64_t have = tensor.dim() == 0 ? 0 : tensor.size(0);
    uint64_t sum = 0;
    for (const uint64_t size : sizes) {
      sum += size;
    }
    if (sizes.size() != static_cast<size_t>(size_) || sum > have) {
      refuse("all_to_all_v_single: ", side, "_split_sizes has ", sizes.size(), " entries of ", sum, " rows for ", size_,
             " ranks and ", have, " rows");
    }
    return sum == have ? tensor : tensor.narrow(0, 0, static_cast<int64_t>(sum));
  }

  template <typename Options>
  static uint64_t tag_of(const Options& options) {
    if constexpr (requires { options.tag; }) {
      return static_cast<uint32_t>(options.tag);
    }
    return 0;
  }

  // Refuses tensors of another kind of device, whose addresses mean nothing to this one's.
  void on_device(const roundelay::CallMemory& memory) const {
    for (const auto& tensor : memory.kept()) {
      if (tensor.device().type() != device_.type()) {
        refuse("the communicator ", name_, " is for ", device_, ", and a tensor is on ", tensor.device(), elsewhere);
      }
    }
  }

  // Returns the longest time without progress of a call.
  milliseconds patience(milliseconds timeout) const {
    return timeout.count() == 0 ? options_.timeout : timeout;
  }

  // Makes the calls of an operation: on this thread, in the background, or in a stream of a GPU. Messages of the CPU go on
  // together, so that no order among them can block them.
  template <typename Options>
  c10::intrusive_ptr<TorchWork> execute(OperationCalls operation, bool async_op, const Options& options) {
    rl_options with{};
    with.timeout_ms = limit_of(options.timeout);
    with.factor = operation.factor;
    const std::string hints = text_of(options.hints);
    with.hints = hints.empty() ? nullptr : hints.c_str();
    on_device(operation.memory);
    if (device_.is_cuda()) {
      return enqueue(operation, async_op, with, patience(options.timeout));
    }
    if (!async_op && operation.calls.size() == 1) {
      if (operation.calls[0](comm_, &with, nullptr) != 0) {
        fail(roundelay::last_error());
      }
      operation.memory.finish();
      return c10::make_intrusive<TorchWorkCompleted>();
    }
    auto calls = std::make_unique<roundelay::BackgroundCalls>();
    for (const auto& call : operation.calls) {
      rl_work* work = nullptr;
      if (call(comm_, &with, &work) != 0) {
        const auto error = roundelay::last_error();
        // What was started still uses the tensors.
        (void)calls->finish();
        fail(error);
      }
      if (work != nullptr) {
        calls->works.push_back(work);
      }
    }
    if (calls->works.empty()) {
      operation.memory.finish();
      return c10::make_intrusive<TorchWorkCompleted>();
    }
    calls->memory = std::move(operation.memory);
    auto work = c10::make_intrusive<Work>(std::move(calls), patience(options.timeout), listener_);
    work->start();
    if (!async_op) {
      work->wait();
    }
    return work;
  }

  // Puts calls into the current stream of the GPU; those that are asynchronous beside it, as torchcomms' other backends do,
  // so that they go on together with what the caller puts there next.
  c10::intrusive_ptr<TorchWork> enqueue(
      const OperationCalls& operation, bool async_op, rl_options with, milliseconds timeout) {
    // The library makes its GPU the current one of the thread; the caller's is another, perhaps.
    c10::DeviceGuard guard(device_);
    c10::OptionalStreamGuard beside;
    if (async_op) {
      if (!beside_) {
        beside_ = std::make_unique<roundelay::Beside>(device_);
      }
      beside_->follow();
      beside.reset_stream(beside_->stream);
      with.overlaps = 1;
    }
    with.memory = RL_CUDA;
    with.stream = roundelay::given_stream(roundelay::current_stream(device_).native_handle());
    for (const auto& call : operation.calls) {
      if (call(comm_, &with, nullptr) != 0) {
        fail(roundelay::last_error());
      }
    }
    operation.memory.finish();
    return c10::make_intrusive<OnStream>(device_, operation.memory.kept(), timeout);
  }

  [[noreturn]] void fail(const roundelay::Error& error) {
    tell();
    throw std::runtime_error(text_of(error));
  }

  rl_comm* host_ = nullptr;
  rl_comm* comm_ = nullptr;
  int rank_ = -1;
  int size_ = -1;
  bool joined_ = false;
  bool finalized_ = false;
  std::atomic<bool> told_{false};
  // The numbers of the generations it has been in.
  std::set<int64_t> used_;
  std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  at::Device device_{at::kCPU};
  // Made by the first asynchronous call on a GPU.
  std::unique_ptr<roundelay::Beside> beside_;
  std::string name_;
  CommOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
};

} // namespace
} // namespace torch::comms
